"""An optional second entry under granian: its own interface, without ASGI's messages.

It only brings the same bytes to the same functions; everything but the hot routes goes through the ASGI
application.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote

from nonbis.faces.service import Application, Message
from nonbis.faces.wire import Header, Reply

_KEY = "idempotency-key"
_JUDGED = ("content-type", "content-encoding", "content-length")
_NOT_ASCII = (_KEY.encode(), b"\xff")


class Headers(Protocol):
    """Of a request; a value that is not ASCII is left out by ``get_all`` but not by ``keys``."""

    def get(self, name: str) -> str | None:
        """The first value."""

    def get_all(self, name: str) -> list[str]:
        """All values."""

    def keys(self) -> list[str]:
        """The name of each line."""

    def items(self) -> list[tuple[str, str]]:
        """Each line that is ASCII."""


class RsgiScope(Protocol):
    """A request without its body. ``path`` is percent-decoded once."""

    http_version: str
    scheme: str
    method: str
    path: str
    query_string: str
    headers: Headers


class RsgiProtocol(Protocol):
    """The body of a request, and the way back."""

    async def __call__(self) -> bytes:
        """The whole body; raises if the client left before it was sent."""

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send the reply."""


class RsgiEntry:
    """The application for granian's own interface."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __rsgi__(self, scope: RsgiScope, protocol: RsgiProtocol) -> None:
        """Answer one request."""
        post = self._application.posts.get(scope.path) if scope.method == "POST" else None
        if post is None:
            reply = await self._through_asgi(scope, protocol)
        else:
            reply = await self._application.post(post, judged_headers(scope.headers), _receiving(protocol))
        headers = [(name.decode(), value.decode()) for name, value in reply.headers]
        protocol.response_bytes(reply.status, headers, reply.body)

    async def _through_asgi(self, scope: RsgiScope, protocol: RsgiProtocol) -> Reply:
        """Everything that is not hot: the ASGI application's reply, gathered."""
        replies: list[Message] = []

        async def send(message: Message) -> None:
            replies.append(message)

        await self._application(_asgi_scope(scope), _receiving(protocol), send)
        body = b"".join(message.get("body", b"") for message in replies[1:])
        return Reply(replies[0]["status"], list(replies[0]["headers"]), body)


def judged_headers(headers: Headers) -> list[Header]:
    """The lines that the hot routes look at, in ASGI's form."""
    found = [(_KEY.encode(), value.encode()) for value in headers.get_all(_KEY)]
    if headers.keys().count(_KEY) != len(found):
        found.append(_NOT_ASCII)
    lines = ((name, headers.get(name)) for name in _JUDGED)
    found.extend((name.encode(), value.encode()) for name, value in lines if value is not None)
    return found


def _receiving(protocol: RsgiProtocol) -> Any:
    """ASGI's ``receive``.

    The body is taken whole and not in pieces: only so does granian tell a body that was cut off from
    one that is complete.
    """

    async def receive() -> Message:
        try:
            return {"type": "http.request", "body": await protocol(), "more_body": False}
        except RuntimeError:
            return {"type": "http.disconnect"}

    return receive


def _asgi_scope(scope: RsgiScope) -> Message:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": scope.http_version,
        "method": scope.method,
        "scheme": scope.scheme,
        "path": scope.path,
        "raw_path": quote(scope.path).encode(),
        "query_string": scope.query_string.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in scope.headers.items()],
        "client": None,
        "server": None,
    }
