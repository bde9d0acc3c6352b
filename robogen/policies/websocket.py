"""One websocket connection to a policy server of openpi's protocol.

The server speaks first, with its metadata; then every request has one answer. After a late answer
the connection is dropped, so that it can never be taken for the answer to the next request.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

from robogen.errors import ConfigError, PolicyError
from robogen.policies import wire
from robogen.policies.remote import CallFailed, NoAnswer, NobodyListens

PORT = 8000
_HANDSHAKE_S = 10.0
_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())
Found = TypeVar("Found")


def address(text: object) -> str:
    """A server's URL as ``ws://host:port`` or ``wss://...``; ``host:port`` is enough.

    Raises:
        ConfigError: It is no such thing.
    """
    whole = str(text)
    plain = "://" not in whole
    try:
        parts = urlsplit(f"ws://{whole}" if plain else whole)
        port, host = parts.port, parts.hostname
    except ValueError:
        port, host = None, None
    if not isinstance(text, str) or host is None or parts.scheme not in ("ws", "wss"):
        raise ConfigError(
            "A policy server is addressed as ws://host:port, wss://host:port or host:port, got "
            f"{text!r}. Correct it."
        )
    if parts.username or parts.password:
        raise ConfigError(
            "A policy server's address must not hold a name or password, because addresses are "
            "recorded. Put the key into an environment variable and name that: api_key_env."
        )
    return f"ws://{whole}{'' if port else f':{PORT}'}" if plain else whole


class Link:
    """A connection, made when it is needed; used by one thread at a time.

    Args:
        url: The server.
        headers: Sent with the handshake.
        limit: Largest answer [bytes].
        check: Looks at the metadata of every new connection, and may refuse it.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        limit: int,
        check: Callable[[Link], None] = lambda link: None,
    ) -> None:
        self.url = url
        self._check = check
        self._headers = dict(headers)
        self._limit = limit
        self._socket: Any = None
        self._closed = False
        self.metadata: Any = None
        """What the server sent first, from the last handshake."""

    def __str__(self) -> str:
        return self.url

    def open(self, within_s: float = _HANDSHAKE_S) -> None:
        """Connect and take the server's metadata, unless that is done.

        Raises:
            CallFailed: It did not work out.
        """
        if self._closed:
            raise PolicyError(f"The connection to {self.url} is closed.")
        if self._socket is not None:
            return
        client = wire.optional("websockets.sync.client", "openpi")
        errors = wire.optional("websockets.exceptions", "openpi")
        try:
            # No pings: openpi's server answers none while its policy thinks, and the first answer
            # of a compiled policy takes minutes. The deadline does that work.
            self._socket = client.connect(
                self.url,
                compression=None,
                max_size=self._limit,
                open_timeout=within_s,
                close_timeout=1.0,
                ping_interval=None,
                additional_headers=self._headers,
                proxy=True if self.url.startswith("wss:") else None,
                logger=_LOG,
            ).__enter__()
        except errors.InvalidStatus as error:
            raise self._refused(int(error.response.status_code)) from error
        # An assertion of websockets' own fails when the other side closes at once.
        except (errors.WebSocketException, EOFError, AssertionError) as error:
            raise NobodyListens(
                f"What listens at {self.url} does not speak the websocket protocol "
                f"({_reason(error)})."
            ) from error
        except TimeoutError as error:
            raise NobodyListens(
                f"{self.url} took no connection within {within_s:.3g} s."
            ) from error
        except OSError as error:
            raise NobodyListens(f"{self.url} took no connection ({_reason(error)}).") from error
        # A server that stops reading must not hold a large request for ever.
        with contextlib.suppress(OSError, AttributeError):
            self._socket.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, _interval(within_s)
            )
        self.metadata = self._receive(within_s, within_s)
        try:
            self._check(self)
        except PolicyError:
            self.drop()
            raise

    def _refused(self, code: int) -> NobodyListens:
        if code in (401, 403):
            return NobodyListens(
                f"{self.url} refused the API key (HTTP {code}): set the environment variable that "
                "api_key_env names to the server's key."
            )
        if code in (429, 503):
            return NobodyListens(f"{self.url} is too busy for another connection (HTTP {code}).")
        return NobodyListens(
            f"{self.url} is something else than a policy server: it answered the handshake with "
            f"HTTP {code}."
        )

    def ask(self, message: bytes, deadline_s: float) -> Any:
        """One request and its answer.

        Raises:
            CallFailed: There was none, in time or at all, or it makes no sense.
        """
        until = time.monotonic() + deadline_s
        self.open(min(_HANDSHAKE_S, deadline_s))
        try:
            self._socket.send(message)
        except Exception as error:
            self.drop()
            raise NoAnswer(f"{self.url} closed the connection ({_reason(error)}).") from error
        return self._receive(until - time.monotonic(), deadline_s)

    def _receive(self, within_s: float, deadline_s: float) -> Any:
        try:
            answer = self._socket.recv(timeout=max(0.0, within_s))
        except TimeoutError as error:
            self.drop()
            raise NoAnswer(f"{self.url} gave no answer within {deadline_s:.3g} s.") from error
        except Exception as error:
            self.drop()
            raise NoAnswer(f"{self.url} closed the connection ({_reason(error)}).") from error
        if isinstance(answer, str):
            self.drop()  # openpi's own server closes after an error too
            raise CallFailed(f"{self.url} answered with an error: {_told(answer).rstrip('.')}.")
        try:
            return wire.unpack(answer)
        except wire.WireError as error:
            self.drop()
            raise CallFailed(f"{self.url} answered with {error}.") from error

    def drop(self) -> None:
        """Close without ceremony: a server that hangs would not take part in one."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close_socket()

    def close(self) -> None:
        """Drop the connection and make no further one."""
        self._closed = True
        self.drop()


def on_each(links: Sequence[Link], work: Callable[[Link], Found]) -> list[Found | CallFailed]:
    """Do something on every connection at the same time, and close them.

    Returns:
        What came of it, in the order of ``links``.
    """

    def one(link: Link) -> Found | CallFailed:
        try:
            return work(link)
        except CallFailed as error:
            return error
        finally:
            link.drop()

    with ThreadPoolExecutor(len(links), "policy-server") as threads:
        return list(threads.map(one, links))


def _interval(seconds: float) -> bytes:
    """A time as socket options want it."""
    if sys.platform == "win32":
        return struct.pack("L", int(1e3 * seconds))
    return struct.pack("ll", int(seconds), int(1e6 * (seconds % 1.0)))


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:200]


def _told(text: str) -> str:
    """A server's error, short: of a traceback its last line."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        return lines[-1][:300]
    return " ".join(lines)[:500] or "an empty text"
