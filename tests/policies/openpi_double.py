"""A policy server as openpi's protocol has it, on websockets and msgpack alone.

Nothing of robogen is used here, so that both ends are tested against the protocol and not against
each other.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve


def pack(message: Any) -> bytes:
    def encode(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {
                b"__ndarray__": True,
                b"data": value.tobytes(),
                b"dtype": value.dtype.str,
                b"shape": value.shape,
            }
        raise TypeError(type(value))

    return msgpack.packb(message, default=encode)


def unpack(data: bytes) -> Any:
    def decode(value: Any) -> Any:
        if b"__ndarray__" in value:
            return np.frombuffer(value[b"data"], value[b"dtype"]).reshape(value[b"shape"])
        return value

    return msgpack.unpackb(data, object_hook=decode)


class Hang:
    """Returned instead of an answer: say nothing more on this connection."""


class Drop:
    """Returned instead of an answer: close the connection."""


class Die:
    """Returned instead of an answer: the whole server is gone."""


class Double:
    """One server; what it answers is up to the test.

    Args:
        answer: From the request and its number, 0-based, over all connections: a map to be packed,
            bytes or text to be sent as they are, or :class:`Hang`, :class:`Drop` or :class:`Die`.
        metadata: Sent first.
        port: 0: a free one.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any], int], Any],
        *,
        metadata: Any = None,
        port: int = 0,
    ) -> None:
        self._answer = answer
        self._metadata = {} if metadata is None else metadata
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._connections: set[ServerConnection] = set()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.opened = 0
        self._server = serve(
            self._handle, "127.0.0.1", port, compression=None, max_size=None, close_timeout=0.1
        )
        self.port = self._server.socket.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _handle(self, connection: ServerConnection) -> None:
        with self._lock:
            self._connections.add(connection)
            self.opened += 1
            self.headers.append(connection.request.headers)
        try:
            first = self._metadata
            connection.send(first if isinstance(first, bytes | str) else pack(first))
            for message in connection:
                request = unpack(message)
                with self._lock:
                    number = len(self.requests)
                    self.requests.append(request)
                reply = self._answer(request, number)
                if reply is Die:
                    threading.Thread(target=self.stop).start()
                    return
                if reply is Drop:
                    return
                if reply is Hang:
                    self._over.wait(20.0)
                    return
                connection.send(reply if isinstance(reply, bytes | str) else pack(reply))
        except ConnectionClosed:
            pass

    def stop(self) -> None:
        """Die: nobody listens any more, and open connections break."""
        self._over.set()
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.close_socket()
        self._server.shutdown()
        self._thread.join(5.0)


@contextmanager
def doubles(*servers: Double) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.stop()


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
