"""Runs the commands that stand in the documents, as they stand.

A block marked ``console`` is a session: lines that begin with ``$ `` are commands, what follows is what
they print (``...`` stands for anything). A block marked ``sh`` is commands alone; each must succeed. All
blocks of one document run in order in one empty folder. A command that ends in ``&``, and ``make serve``,
starts a server, which is awaited. ``<!-- stop 8000 -->`` stops the server on that port, as the reader
does with Ctrl-C. Only the ports are changed: 8000 and 8001 become free ones.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

BLOCK = re.compile(r"^```(console|sh)\n(.*?)^```$|^<!-- stop (\d+) -->$", re.MULTILINE | re.DOTALL)
SERVER_SECONDS_MAX = 20.0
COMMAND_SECONDS_MAX = 60.0
TERMINAL_COLUMNS = 80
"""What a terminal has when it is opened; documents show what stands there."""
SAME_BUT_SPACE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

WRAPPER = """#!/bin/sh
# Stands before the real command and gives it this run's ports.
case "$1" in
  serve) shift; exec {command} serve --port {ports[8000]} "$@" ;;
  bank) shift; exec {command} bank --port {ports[8001]} "$@" ;;
  pay) shift; exec {command} pay --url http://127.0.0.1:{ports[8000]} "$@" ;;
  *) exec {command} "$@" ;;
esac
"""
MAKE = """#!/bin/sh
[ "$1" = serve ] || exit 2
exec nonbis serve
"""


@dataclass(frozen=True)
class Step:
    """One command of a document, with what it prints, or the port of a server to stop."""

    line: int
    command: str
    output: str | None = None
    stops: int | None = None

    @property
    def serves(self) -> int | None:
        """The port that the command begins to listen on, for one that starts a server."""
        if self.command != "make serve" and not self.command.endswith("&"):
            return None
        return 8001 if "nonbis bank" in self.command else 8000


def steps_of(text: str) -> list[Step]:
    """The commands of a document in order."""
    found: list[Step] = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[3]:
            found.append(Step(line, "", stops=int(match[3])))
        elif match[1] == "console":
            found += _session(match[2], line + 1)
        else:
            found += [Step(number, command) for number, command in _logical_lines(match[2], line + 1)]
    return found


def _session(block: str, line: int) -> Iterator[Step]:
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    line += parts[0].count("\n")
    for part in parts[1:]:
        ((_, command), *_) = _logical_lines(part, 0)
        taken = command.count("\n") + 1
        yield Step(line, command, "\n".join(part.split("\n")[taken:]))
        line += part.count("\n")


def _logical_lines(block: str, line: int) -> list[tuple[int, str]]:
    """Commands with their line numbers; one that ends in a backslash goes on in the next line."""
    found = []
    for match in re.finditer(r"(?:[^\n]*\\\n)*[^\n]+", block):
        command = re.sub(r"\s+#\s.*$", "", match.group()).strip()
        if command and not command.startswith("#"):
            found.append((line + block.count("\n", 0, match.start()), command))
    return found


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Stage:
    """The folder, ports and servers of one document's run."""

    folder: Path
    command: str = field(default_factory=lambda: shlex.quote(str(Path(sys.executable).parent / "nonbis")))
    ports: dict[int, int] = field(default_factory=lambda: {8000: free_port(), 8001: free_port()})
    servers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        programs = self.folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        (programs / "activate").write_text("")
        # on a terminal, where the reader is, curl shows no progress
        (self.folder / ".curlrc").write_text("no-progress-meter\n")
        python = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        for name, text in (
            ("python", python),
            ("nonbis", WRAPPER.format(command=self.command, ports=self.ports)),
            ("make", MAKE),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return self

    def __exit__(self, *_: object) -> None:
        for port in list(self.servers):
            self.stop(port)

    def run(self, step: Step) -> None:
        """Do one step; raises AssertionError where the document does not tell the truth."""
        if step.stops is not None:
            self.stop(step.stops)
        elif step.serves is not None:
            self._serve(step, step.serves)
        else:
            self._check(step)

    def stop(self, port: int) -> None:
        """End a server as Ctrl-C does, whatever it started included."""
        server = self.servers.pop(port)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGINT)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    def _serve(self, step: Step, port: int) -> None:
        if port in self.servers:
            assert self.servers[port].poll() is not None, f"line {step.line}: port {port} is still served"
            self.stop(port)
        command = self._here(step.command.removesuffix("&"))
        log = self.folder / f"server-{port}.log"
        with log.open("ab") as output:
            self.servers[port] = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._await(step, port, log)

    def _await(self, step: Step, port: int, log: Path) -> None:
        deadline = time.monotonic() + SERVER_SECONDS_MAX
        while time.monotonic() < deadline:
            code = self.servers[port].poll()
            assert code is None, f"line {step.line}: {step.command}: exit {code}\n{log.read_text()}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[port]), 1):
                return
            time.sleep(0.05)
        raise AssertionError(f"line {step.line}: {step.command}: does not listen\n{log.read_text()}")

    def _check(self, step: Step) -> None:
        done = subprocess.run(
            ["bash", "-c", self._here(step.command)],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        printed = done.stdout.decode().replace("\r", "")
        told = f"line {step.line}: {step.command}: exit {done.returncode}, printed:\n{printed}"
        if step.output is None or not step.output.strip():
            assert done.returncode == 0, told
            return
        wanted = self._here(step.output).strip()
        same = doctest.OutputChecker().check_output(wanted + "\n", printed.strip() + "\n", SAME_BUT_SPACE)
        assert same, f"{told}\nand the document says:\n{wanted}"

    def _here(self, text: str) -> str:
        """The text with this run's ports."""
        for port, real in self.ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{real}")
        return text

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NONBIS_")}
        return kept | {
            "PATH": f"{self.folder / '.venv' / 'bin'}:{os.environ['PATH']}",
            "CURL_HOME": str(self.folder),
            "COLUMNS": str(TERMINAL_COLUMNS),
            "NO_COLOR": "1",
        }
