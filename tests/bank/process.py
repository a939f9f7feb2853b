"""A bank as a process of its own, for tests that count what was really sent."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

_ROOT = Path(__file__).parents[2]
_START_SECONDS = 20.0


class BankProcess:
    """``nonbis bank`` on a free port; use it as a context manager.

    ``options`` are the command's own: ``"--no-dedupe"``, ``"--delay-ms=500"``. ``start`` after ``kill`` or
    ``stop`` gives the same bank again: same port, same ledger, other options if they are given.
    """

    def __init__(self, ledger: Path, *options: str) -> None:
        self.ledger = ledger
        self.options = options
        self.port = 0
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self, *options: str) -> None:
        """Start it and wait until it listens."""
        self.options = options or self.options
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "nonbis.bank", f"--port={self.port}", f"--ledger={self.ledger}"),
                *self.options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_ROOT / "src")},
        )
        self.url = self._first_line()
        self.port = int(self.url.rpartition(":")[2])

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        line = self._process.stdout.readline().strip() if ready else ""
        if not line.startswith("http://"):
            self._process.kill()
            _, errors = self._process.communicate()
            raise AssertionError(f"the bank did not start: {line} {errors}")
        return line

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            process.communicate(timeout=_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return process.returncode

    def get(self, path: str) -> tuple[int, object]:
        """Status and JSON of a GET."""
        return call(self.url + path)

    def post(self, reference: str, body: object = None, **headers: str) -> tuple[int, dict]:
        """Status and JSON of a POST to /transfers."""
        default = {"amount": 350, "currency": "EUR", "destination": "roastery"}
        status, value = call(
            f"{self.url}/transfers",
            json.dumps(default if body is None else body).encode(),
            {"Reference": reference, **headers},
        )
        assert isinstance(value, dict)
        return status, value

    def journal(self) -> list[dict]:
        """Every transfer really made."""
        status, value = self.get("/journal")
        assert status == 200
        assert isinstance(value, list)
        return value

    def count(self) -> int:
        """How many transfers were really made."""
        return len(self.journal())

    def wait_for(self, path: str, status: int, *, seconds: float = 10.0) -> object:
        """The JSON of a path once it answers with this status."""
        deadline = time.monotonic() + seconds
        while (answer := self.get(path))[0] != status:
            assert time.monotonic() < deadline, f"{path} answers {answer}, not {status}"
            time.sleep(0.01)
        return answer[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def call(url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, object]:
    """Status and JSON of one request; a POST if there is a body. Raises OSError if there is no answer."""
    request = urllib.request.Request(url, data=body, headers=headers or {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
