"""``python -m nonbis.bank``."""

from __future__ import annotations

from nonbis.bank.command import bank

if __name__ == "__main__":
    bank()
