"""Requests to a bank, byte by byte."""

from __future__ import annotations

import socket


def raw(bank, request, *, half_close=False, timeout=10.0):
    """Everything that the bank answers to these bytes until it closes or falls silent."""
    with socket.create_connection(("127.0.0.1", bank.port), timeout=timeout) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def post_bytes(reference, body, *headers):
    lines = ["POST /transfers HTTP/1.1", "Host: bank", f"Reference: {reference}", "Connection: close"]
    lines += [f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
