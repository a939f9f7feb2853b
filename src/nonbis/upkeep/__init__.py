"""Upkeep: what runs beside the calls: sweeping, settling, queries."""
