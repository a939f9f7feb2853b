"""A client as somebody would write it who has read one article about idempotent payments, and no more.

It makes a UUID, posts ``{"uuid", "amount", "destination"}`` to ``POST /payment`` and tries six times under
the same UUID. A 4xx stops; 5xx and time-outs are tried again; ``{"state": "applied"}`` is success and
``{"state": "failed"}`` may be tried again. It uses nothing but the standard library and knows nothing of
this project.

    python article_client.py http://127.0.0.1:8000/payment 1250 alice
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.parse
import uuid

TRIES = 6


def pay(
    url: str,
    amount: int,
    destination: str,
    *,
    key: str | None = None,
    tries: int = TRIES,
    first_wait_seconds: float = 0.05,
    timeout_seconds: float = 10.0,
) -> str:
    """``applied``, ``failed`` (the last answer said so), ``stopped`` (4xx) or ``gave up``."""
    body = json.dumps({"uuid": key or str(uuid.uuid4()), "amount": amount, "destination": destination})
    result = "gave up"
    for number in range(tries):
        if number:
            time.sleep(first_wait_seconds * 2 ** (number - 1))
        result = post(url, body, timeout_seconds)
        if result in ("applied", "stopped"):
            return result
    return result


def post(url: str, body: str, timeout_seconds: float) -> str:
    """One try: ``applied``, ``failed``, ``stopped`` or ``gave up`` if it may be tried again."""
    address = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=timeout_seconds)
    try:
        connection.request("POST", address.path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return read(response.status, response.read())
    except (OSError, http.client.HTTPException):
        return "gave up"
    finally:
        connection.close()


def read(status: int, body: bytes) -> str:
    """What an answer means to this client."""
    if 400 <= status < 500:
        return "stopped"
    if not 200 <= status < 300:
        return "gave up"
    try:
        state = json.loads(body)["state"]
    except (ValueError, KeyError, TypeError):
        return "gave up"
    return state if state in ("applied", "failed") else "gave up"


def main() -> int:
    url, amount, destination = sys.argv[1:]
    result = pay(url, int(amount), destination)
    print(result)
    return 0 if result == "applied" else 1


if __name__ == "__main__":
    sys.exit(main())
