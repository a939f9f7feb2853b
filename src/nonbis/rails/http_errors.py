"""Every error of the HTTP client, sorted once: surely not sent, or unknown.

An error means "not sent" only if both halves of the evidence agree: its class arises before a request
is written, and the gate, the last thing before the first byte, has not been passed. A class that is not
listed is unknown, so a new one in a later release can cost certainty but never a second effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import httpx2

from nonbis.errors import NotSent, OutcomeUnknown, RailError


class Fate(StrEnum):
    """What an error says of the request."""

    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"


FATES: Final[dict[type[BaseException], Fate]] = {
    # Before a connection stands: no name, no route, refused, no TLS, no room in the pool.
    httpx2.ConnectError: Fate.NOT_SENT,
    httpx2.ConnectTimeout: Fate.NOT_SENT,
    httpx2.PoolTimeout: Fate.NOT_SENT,
    # Before anything was tried.
    httpx2.InvalidURL: Fate.NOT_SENT,
    httpx2.UnsupportedProtocol: Fate.NOT_SENT,
    # This rail's own limit on the whole exchange, if it strikes before the gate.
    TimeoutError: Fate.NOT_SENT,
    # The request, or a part of it, may have left.
    httpx2.ReadError: Fate.UNKNOWN,
    httpx2.ReadTimeout: Fate.UNKNOWN,
    httpx2.WriteError: Fate.UNKNOWN,
    httpx2.WriteTimeout: Fate.UNKNOWN,
    httpx2.CloseError: Fate.UNKNOWN,
    httpx2.LocalProtocolError: Fate.UNKNOWN,
    httpx2.RemoteProtocolError: Fate.UNKNOWN,
    httpx2.ProxyError: Fate.UNKNOWN,
    httpx2.DecodingError: Fate.UNKNOWN,
    httpx2.TooManyRedirects: Fate.UNKNOWN,
    httpx2.HTTPStatusError: Fate.UNKNOWN,
    httpx2.CookieConflict: Fate.UNKNOWN,
    httpx2.SSEError: Fate.UNKNOWN,
    httpx2.StreamError: Fate.UNKNOWN,
    httpx2.StreamConsumed: Fate.UNKNOWN,
    httpx2.StreamClosed: Fate.UNKNOWN,
    httpx2.ResponseNotRead: Fate.UNKNOWN,
    httpx2.RequestNotRead: Fate.UNKNOWN,
    # Bases: what is no more exactly known than this is not known.
    httpx2.HTTPError: Fate.UNKNOWN,
    httpx2.RequestError: Fate.UNKNOWN,
    httpx2.TransportError: Fate.UNKNOWN,
    httpx2.TimeoutException: Fate.UNKNOWN,
    httpx2.NetworkError: Fate.UNKNOWN,
    httpx2.ProtocolError: Fate.UNKNOWN,
}


def sort_error(error: Exception, *, gate_passed: bool) -> RailError:
    """The rail error that stands for an error of the client."""
    told = f"{type(error).__name__}: {error}".rstrip(": ")
    if not gate_passed and FATES.get(type(error)) is Fate.NOT_SENT:
        return NotSent(f"the transfer was not sent: {told}")
    return OutcomeUnknown(f"the bank's answer is not known: {told}")
