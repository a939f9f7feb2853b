"""The service as real processes on free ports, and a site of one bank and several of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from click.testing import CliRunner, Result

from nonbis.operations.cli import main
from tests.bank.process import BankProcess
from tests.faces.contract import Answer, check

ROOT = Path(__file__).parents[2]
NONBIS = [sys.executable, "-m", "nonbis"]
START_SECONDS = 30.0
ORDER = {"amount": 350, "destination": "roastery"}
QUICK: dict[str, float] = {"beat_seconds": 0.2, "lost_after_seconds": 1.0, "effect_timeout_seconds": 1.0}
"""Policy for tests: the shortest that the settings allow beside the contract's own proportions."""
T = TypeVar("T")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(question: Callable[[], T], *, seconds: float = 15.0, what: str = "it") -> T:
    """The first answer of ``question`` that is true; AssertionError if none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds} s: {answer!r}"
        time.sleep(0.02)


def toml(settings: Mapping[str, Any], policy: Mapping[str, Any]) -> str:
    """A configuration file."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join([*lines, "[policy]", *(f"{name} = {value}" for name, value in policy.items()), ""])


def environment(failpoint: str | None = None) -> dict[str, str]:
    """That of this process, with the source in reach and the failpoint armed."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("NONBIS_")}
    found["PYTHONPATH"] = str(ROOT / "src")
    return {**found, "NONBIS_FAILPOINT": failpoint} if failpoint else found


def exchange(
    port: int,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float = 30.0,
) -> Answer:
    """One request on a connection of its own, its answer held against the contract. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, target, body, dict(headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return check(method, target, Answer(response.status, found, response.read()))
    finally:
        connection.close()


class ServeProcess:
    """``nonbis serve`` on a free port; a context manager that always ends the whole process group."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        failpoint: str | None = None,
        command: Sequence[str] = (*NONBIS, "serve"),
    ) -> None:
        self.folder = folder
        self.options = options
        self.command = command
        self.port = free_port()
        self.log = folder / f"serve-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start(failpoint=failpoint)

    def start(self, *options: str, failpoint: str | None = None) -> None:
        """Start it, on the same port and store as before, and wait until it is ready."""
        self.options = options or self.options
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, f"--port={self.port}", *self.options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment(failpoint),
                start_new_session=True,
            )
        until(self._is_ready, seconds=START_SECONDS, what=f"ready on {self.port}")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"nonbis serve has ended: {self.log.read_text()}"
        try:
            return self.call("GET", "/readyz").status == 200
        except OSError:
            return False

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def call(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        """One request; ``body`` is sent as JSON."""
        raw = None if body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if raw is not None:
            sent.setdefault("Content-Type", "application/json")
        return exchange(self.port, method, target, raw, sent)

    def pay(self, name: str, **order: Any) -> Answer:
        """``POST /payments`` under this name."""
        return self.call("POST", "/payments", {**ORDER, **order}, Idempotency_Key=name)

    def pay_until_decided(self, name: str) -> Answer:
        """Retries while the answer is "in progress", as a client would."""
        answers: list[Answer] = []

        def decided() -> bool:
            answers.append(self.pay(name))
            return answers[-1].code != "in-progress"

        until(decided, what=f"a decision on {name}")
        return answers[-1]

    def pay_and_die(self, name: str) -> None:
        """A payment whose answer never comes, because the process is killed by its failpoint."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = self.pay(name)
            raise AssertionError(f"the process was to die, but answered {answer}")
        assert self.process.wait(START_SECONDS) == -signal.SIGKILL

    def payment(self, name: str) -> dict[str, Any]:
        """The payment's present state."""
        answer = self.call("GET", f"/payments/by-name/{name}")
        assert answer.status == 200, answer
        view: dict[str, Any] = answer.json
        return view

    def wait_for_state(self, name: str, state: str, *, seconds: float = 15.0) -> dict[str, Any]:
        """The payment, as soon as it is in this state."""
        until(lambda: self.payment(name)["state"] == state, seconds=seconds, what=f"{name} {state}")
        return self.payment(name)

    def send_signal(self, number: signal.Signals) -> None:
        """A signal to the process alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        self._signal_group(signal.SIGKILL)
        self.process.wait(START_SECONDS)

    def stop(self) -> int:
        """SIGTERM to the process; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_SECONDS + 15)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal_group(signal.SIGCONT)
        self.kill()


class Site:
    """One bank, one store, and the serving processes on it, all in one folder."""

    def __init__(
        self,
        folder: Path,
        *bank_options: str,
        policy: Mapping[str, float] | None = None,
        command: Sequence[str] = (*NONBIS, "serve"),
    ) -> None:
        self.folder = folder
        self.command = command
        self.store = f"sqlite:///{folder / 'nonbis.db'}"
        self._policy = {**QUICK, **(policy or {})}
        self._stack = contextlib.ExitStack()
        self.bank = self._stack.enter_context(BankProcess(folder / "bank.db", *bank_options))

    def serve(
        self, *options: str, failpoint: str | None = None, rail_query: str = "", **settings: Any
    ) -> ServeProcess:
        """Another serving process; it ends with the site."""
        given = (*self.options(rail_query, **settings), *options)
        server = ServeProcess(self.folder, *given, failpoint=failpoint, command=self.command)
        return self._stack.enter_context(server)

    def options(self, rail_query: str = "", **settings: Any) -> list[str]:
        """The command's options for this site."""
        number = len(list(self.folder.glob("config-*.toml")))
        config = self.folder / f"config-{number}.toml"
        config.write_text(toml(settings, self._policy))
        return [f"--config={config}", f"--store={self.store}", f"--rail={self.bank.url}{rail_query}"]

    def transfers(self) -> int:
        """How many transfers the bank really made."""
        return self.bank.count()

    def ops(self, *words: str) -> Any:
        """What ``nonbis ops ... --json`` prints; AssertionError unless it ends with 0."""
        return self.run("ops", *words)

    def run(self, *words: str) -> Any:
        """What a command on this store prints with ``--json``."""
        done = self.invoke(*words)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def run_ops(self, *words: str) -> Result:
        """``nonbis ops ... --json`` on this store, however it ends."""
        return self.invoke("ops", *words)

    def invoke(self, *words: str) -> Result:
        """A command in this process: it is another process than those that serve."""
        return CliRunner().invoke(main, [*words, f"--store={self.store}", "--json"])

    def in_doubt(self) -> list[str]:
        """The ids that ``ops in-doubt`` lists."""
        return [element["id"] for element in self.ops("in-doubt")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def run_nonbis(
    *words: str, folder: Path, failpoint: str | None = None, seconds: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    return subprocess.run(
        [*NONBIS, *words],
        cwd=folder,
        env=environment(failpoint),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def at_once(count: int, call: Callable[[int], T]) -> list[T]:
    """``count`` calls from as many threads, begun together; their results in order."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


@contextlib.contextmanager
def raw_connection(port: int, *parts: bytes) -> Iterator[socket.socket]:
    """A connection on which these bytes were sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        yield connection
