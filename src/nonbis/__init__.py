"""Nonbis: not twice for the same thing."""

__version__ = "0.1.0"
