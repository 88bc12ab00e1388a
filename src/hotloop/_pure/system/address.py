"""Resolves address literals without a thread.

The compiled module of this name also converts addresses for the transports. The pure implementation uses asyncio's
transports, whose addresses the socket module converts.

Source: the documentation of `socket`; getaddrinfo(3).
"""

import socket
from typing import Any

from hotloop._asyncio.internals import base_events

_NUMERIC_HOST: int = getattr(socket, "AI_NUMERICHOST", 0)
_NUMERIC_PORT: int = getattr(socket, "AI_NUMERICSERV", 0)

# None if a program had replaced the function before this module was imported.
_genuine_getaddrinfo: Any = socket.getaddrinfo
if getattr(_genuine_getaddrinfo, "__globals__", None) is not vars(socket):
    _genuine_getaddrinfo = None


def resolves_at_once(host: object, port: object, flags: object = 0) -> bool:
    """Whether socket.getaddrinfo() is certain to return or raise without asking a resolver or a database.

    It is if the host is None, or an IPv4 or IPv6 address in the usual form, with or without a zone, or the flags say
    AI_NUMERICHOST; and the port is None, or 0 to 65535 as a number or in digits, or the flags say AI_NUMERICSERV.
    It is not if a program has replaced socket.getaddrinfo()."""
    if base_events.socket.getaddrinfo is not _genuine_getaddrinfo:
        return False
    bits = flags if isinstance(flags, int) else 0
    if host is not None and not bits & _NUMERIC_HOST and not _is_literal(host):
        return False
    return port is None or bits & _NUMERIC_PORT != 0 or _is_port_number(port)


def getaddrinfo_literal(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]] | None:
    """What socket.getaddrinfo() returns or raises if it resolves_at_once(); otherwise None."""
    if not resolves_at_once(host, port, flags):
        return None
    infos: list[tuple[Any, ...]] = _genuine_getaddrinfo(host, port, family, type, proto, flags)
    return infos


def _is_literal(host: object) -> bool:
    text = _text_of(host)
    if ":" not in text:
        return text[:1].isdigit() and _is_number(socket.AF_INET, text)
    digits, _, _ = text.partition("%")
    return _is_number(socket.AF_INET6, digits)


def _is_number(family: int, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _is_port_number(port: object) -> bool:
    """Whether a port is 0 to 65535, or at most five digits: then no service is looked up."""
    if isinstance(port, int):
        return 0 <= port <= 0xFFFF
    text = _text_of(port)
    return len(text) <= 5 and text.isdigit()


def _text_of(host: object) -> str:
    """The text of a host or port if it may be numeric; otherwise an empty string."""
    if type(host) is bytes:
        host = host.decode("latin-1")
    return host if type(host) is str and host.isascii() and "\0" not in host else ""
