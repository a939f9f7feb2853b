"""A server on a raw socket that does exactly what a script says, one action for each request.

It counts what arrived and keeps every byte of it, so that a test can tell one request on the wire from
two. Once the script is used up the last action goes on.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self


@dataclass(frozen=True)
class Say:
    """Answer with these bytes, then close the connection (or keep it)."""

    raw: bytes
    keep: bool = False


@dataclass(frozen=True)
class Reset:
    """Read the whole request, then reset the connection after ``first`` bytes."""

    first: bytes = b""


@dataclass(frozen=True)
class Hang:
    """Read the whole request, answer ``first`` and nothing more until the server is closed."""

    first: bytes = b""


@dataclass(frozen=True)
class Close:
    """Read the whole request, answer ``first`` and close in good order."""

    first: bytes = b""


Action = Say | Reset | Hang | Close


@dataclass(frozen=True)
class Received:
    """One request as it came off the wire."""

    head: bytes
    body: bytes

    def values(self, header: str) -> list[str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines)
        return [value.strip() for name, _, value in pairs if name.lower() == header.lower()]

    @property
    def target(self) -> str:
        return self.head.split(b" ")[1].decode()


@dataclass
class Scripted:
    actions: list[Action]
    received: list[Received] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self.arrived = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (request := _read_request(connection)) is not None:
                with self._lock:
                    action = self.actions[min(len(self.received), len(self.actions) - 1)]
                    self.received.append(request)
                self.arrived.set()
                if not self._act(connection, action):
                    return

    def _act(self, connection: socket.socket, action: Action) -> bool:
        """Carry out the action; whether the connection goes on."""
        if isinstance(action, Say):
            connection.sendall(action.raw)
            if action.keep:
                return True
        elif action.first:
            connection.sendall(action.first)
        if isinstance(action, Hang):
            self._ended.wait()
        if isinstance(action, Reset):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        return False


def _read_request(connection: socket.socket) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int((Received(head, b"").values("content-length") or ["0"])[0])
    while len(body) < length:
        more = connection.recv(65536)
        if not more:
            return None
        body += more
    return Received(head, body)


def http(
    status: int, body: bytes | dict[str, Any] = b"", kind: str = "application/json", **headers: str
) -> bytes:
    """A whole HTTP answer; underscores in header names become dashes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reason = HTTPStatus(status).phrase if status in {one.value for one in HTTPStatus} else "Odd"
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Type: {kind}", f"Content-Length: {len(raw)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def say(
    status: int, body: bytes | dict[str, Any] = b"", kind: str = "application/json", **headers: str
) -> Say:
    return Say(http(status, body, kind, Connection="close", **headers))


def payment(state: str = "applied", **changes: Any) -> dict[str, Any]:
    """A payment's body for 12.50 USD to alice."""
    body: dict[str, Any] = {
        "id": "7:42",
        "state": state,
        "amount": 1250,
        "currency": "USD",
        "destination": "alice",
        "attempt": 1,
        "created_at": "2026-12-01T00:00:00.000Z",
        "changed_at": "2026-12-01T00:00:00.100Z",
        "receipt": {"reference": "abc"} if state == "applied" else None,
    }
    return {**body, **changes}


def problem(status: int, code: str, effect: str = "unknown", retry_after: str = "", **members: Any) -> Say:
    """A problem answer of the service."""
    body = {
        "type": f"https://nonbis.example/problems/{code}",
        "title": code,
        "status": status,
        "code": code,
        "effect": effect,
        **members,
    }
    headers = {"Retry_After": retry_after} if retry_after else {}
    return say(status, body, "application/problem+json", **headers)


def free_port() -> int:
    """A port on 127.0.0.1 at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


APPLIED = say(201, payment())
DECLINED = say(201, payment("failed", reason="declined"))
RAIL_UNREACHABLE = problem(503, "rail-unreachable", "not_done", "1")
STORE_UNAVAILABLE = problem(503, "store-unavailable", "not_done", "1")
SIMULATED = problem(500, "simulated-failure", "unknown")
IN_PROGRESS = problem(409, "in-progress", "unknown", "1")
IN_DOUBT = problem(409, "outcome-unknown", "unknown", operation_id="7:42")
IN_DOUBT_ASKED = problem(409, "outcome-unknown", "unknown", "2", operation_id="7:42")
CANCELLED = problem(409, "cancelled", "not_done")
NAME_REUSED = problem(422, "name-reused", "not_done", member="amount")
EXPIRED = problem(410, "name-expired", "unknown")
UNAUTHORISED = problem(401, "unauthorised", "not_done")
PROXY_502 = say(502, b"<html>Bad Gateway</html>", "text/html")
