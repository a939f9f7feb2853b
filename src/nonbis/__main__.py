"""``python -m nonbis``."""

from __future__ import annotations

from nonbis.operations.cli import main

if __name__ == "__main__":
    main(prog_name="nonbis")
