"""Stores: memory (the reference model) and SQLite, behind one port."""
