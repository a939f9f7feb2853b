"""Payments over HTTP on SQLite against a bare ASGI answer on the same server, in one run.

``python -m bench.http [--seconds S] [--rounds N]`` needs wrk (Debian: ``apt-get install wrk``). Three
servers run side by side, and in each round each of them is loaded in turn with 64 and with 256
connections; the figure to read is the ratio, the median over the rounds. Names are unique, the
simulated rail keeps its ledger in memory for this purpose alone, and afterwards the rows are counted:
every answer that said 201 must be an applied operation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path = [entry for entry in sys.path if Path(entry).resolve() != HERE]  # else this file is ``http``
import urllib.request  # noqa: E402  (it imports the standard library's http)

VARIANTS = {
    "bare": "a bare ASGI answer",
    "route": "the payments route without the engine",
    "payments": "payments on SQLite, as `nonbis serve` has it",
}
CONNECTIONS = (64, 256)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start(variant: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """One server, answering."""
    port = free_port()
    own = folder / variant
    own.mkdir()
    command = [sys.executable, "-m", "bench.http_server", variant, str(port), str(own)]
    server = subprocess.Popen(command, cwd=HERE.parent)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.05)
    raise SystemExit(f"the server {variant} did not start")


def load(port: int, connections: int, seconds: float, run: str) -> float:
    """Requests per second of one wrk run. Ends the program if an answer was not a success."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(HERE / "payments.lua")]
    out = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/payments", run], capture_output=True, text=True, check=True
    ).stdout
    if "Non-2xx" in out:
        raise SystemExit(f"wrk saw answers that were no success:\n{out}")
    return float(out.partition("Requests/sec:")[2].split()[0])


def sync_milliseconds(folder: Path) -> float:
    """Median time of one durable write of 4 KB on this disk."""
    times = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


def page_of(port: int, query: str) -> dict[str, Any]:
    """One page of the service's list."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/payments?limit=10000{query}") as answer:
        page: dict[str, Any] = json.load(answer)
    return page


def applied(port: int) -> int:
    """How many operations the service has, all of them applied once the last ones have ended."""
    while page_of(port, "&state=started")["data"]:
        time.sleep(0.1)
    count, after = 0, ""
    while True:
        page = page_of(port, after)
        others = [payment for payment in page["data"] if payment["state"] != "applied"]
        if others:
            raise SystemExit(f"{len(others)} payments have not ended as applied, such as {others[0]}")
        count += len(page["data"])
        if page["next"] is None:
            return count
        after = f"&after={page['next']}"


def measure(seconds: float, rounds: int, folder: Path) -> dict[tuple[str, int], list[float]]:
    """Requests per second for each variant and number of connections, one figure a round."""
    servers = {variant: start(variant, folder) for variant in VARIANTS}
    rates: dict[tuple[str, int], list[float]] = {}
    try:
        for number in range(rounds):
            for connections in CONNECTIONS:
                for variant, (_, port) in servers.items():
                    rate = load(port, connections, seconds, f"r{number}c{connections}")
                    rates.setdefault((variant, connections), []).append(rate)
                    print(f"round {number + 1} {variant:9} {connections:4}: {rate:8.0f}/s", file=sys.stderr)
        print(f"{applied(servers['payments'][1])} operations, all applied", file=sys.stderr)
    finally:
        for server, _ in servers.values():
            server.send_signal(signal.SIGTERM)
        for server, _ in servers.values():
            server.wait()
    return rates


def main() -> None:
    """Print a table of medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("this needs wrk; on Debian: apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        sync = sync_milliseconds(Path(folder))
        rates = measure(options.seconds, options.rounds, Path(folder))
    cpus = len(os.sched_getaffinity(0))
    print(f"Python {platform.python_version()}, {cpus} cores shared with wrk, a sync takes {sync:.2f} ms")
    print("| variant | connections | requests/s | ratio to bare |\n|---|---|---|---|")
    for (variant, connections), figures in sorted(rates.items(), key=lambda item: item[0][1]):
        ratios = [a / b for a, b in zip(figures, rates["bare", connections], strict=True)]
        print(
            f"| {VARIANTS[variant]} | {connections} | {statistics.median(figures):.0f}"
            f" | {statistics.median(ratios):.2f} |"
        )


if __name__ == "__main__":
    main()
