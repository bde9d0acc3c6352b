"""How GR00T's server and its clients talk: a ZeroMQ request, msgpack inside, arrays as npy files.

An array is ``{"__ndarray_class__": True, "as_npy": bytes}``; a modality's configuration is
``{"__ModalityConfig_class__": True}`` with its fields under ``as_json``, which is a text in one
generation and a mapping in the next, or under ``as_dict``. Nothing is executed and no size is
believed. The first release sent pickles: those are neither sent nor read.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError
from robogen.policies.remote import LARGEST_ANSWER, CallFailed, NoAnswer, NobodyListens
from robogen.policies.wire import optional

PORT = 5555
_CONNECT_S = 5.0
_LARGEST_FRAME = 2**28
"""Bytes beyond which a message is not even received."""
_ARRAY, _NPY = "__ndarray_class__", "as_npy"
_MODALITY, _FIELDS = "__ModalityConfig_class__", ("as_json", "as_dict")
_MAGIC = b"\x93NUMPY"
_KINDS = "biufUS"


def pack(message: Mapping[str, Any]) -> bytes:
    """A message as bytes; arrays in it become npy files."""
    return bytes(optional("msgpack", "groot").packb(message, default=_encoded))


def unpack(data: bytes) -> Any:
    """The message in some bytes.

    Raises:
        ValueError: They are none.
    """
    msgpack = optional("msgpack", "groot")
    if data[:2] == b"PK" or (data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05"):
        raise ValueError(
            "a pickle, as the first release of GR00T's server sends; reading it could run any "
            "code. Use a server of N1.5 or later"
        )
    try:
        return msgpack.unpackb(data, object_hook=_decoded)
    except (msgpack.UnpackException, TypeError, OverflowError, RecursionError, ValueError) as error:
        raise ValueError(f"not msgpack ({error or type(error).__name__})") from error


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return {_ARRAY: True, _NPY: file.getvalue()}
    raise TypeError(f"a {type(value).__name__} has no form on the wire")


def _decoded(value: dict[Any, Any]) -> Any:
    if _ARRAY in value:
        return array_of(value.get(_NPY))
    if _MODALITY in value:
        inner = next((value[name] for name in _FIELDS if name in value), None)
        return json.loads(inner) if isinstance(inner, str | bytes) else inner
    return value


def array_of(data: Any) -> NDArray[Any]:
    """The array in an npy file's bytes.

    Raises:
        ValueError: They are something else, or say more than they hold.
    """
    if not isinstance(data, bytes) or not data.startswith(_MAGIC):
        raise ValueError("an array that is not an npy file")
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # whatever Python's parser makes of the header
        raise ValueError("an npy file whose header cannot be read") from error
    if dtype.hasobject:
        raise ValueError(f"an array of {dtype}, which only a pickle can hold")
    if dtype.kind not in _KINDS or min(shape, default=0) < 0:
        raise ValueError(f"an array of {dtype} and shape {shape}")
    numbers = np.frombuffer(data, dtype, offset=file.tell())
    return numbers.reshape(shape, order="F" if fortran else "C")


def address(url: object) -> str:
    """A server's address as ZeroMQ wants it; ``host`` and ``host:port`` are enough.

    Raises:
        ConfigError: It is not one.
    """
    text = url if isinstance(url, str) else ""
    whole = text if "://" in text else f"tcp://{text}"
    try:
        parts = urlsplit(whole)
        port = parts.port
        good = parts.scheme == "tcp" and bool(parts.hostname) and parts.path in ("", "/")
    except ValueError:
        good, port = False, None
    if good and (parts.username or parts.password):
        raise ConfigError(
            "A server's address must not hold a name or password, because addresses are recorded. "
            "Leave them out; a token goes into the environment variable api_token_env names."
        )
    if not good or not text:
        raise ConfigError(
            f"A GR00T server is addressed as tcp://host:port or host:port, got {url!r}. Correct it."
        )
    return whole.rstrip("/") + ("" if port else f":{PORT}")


class Server:
    """One address and its socket; asked by one thread at a time.

    A request socket that got no reply is useless from then on, so it is made anew after every
    failure.

    Args:
        url: From :func:`address`.
        deadline_s: Longest wait for a reply [s].
        token: Sent with every request, where the server was given one.
    """

    def __init__(self, url: str, *, deadline_s: float, token: str | None = None) -> None:
        self._zmq = optional("zmq", "groot")
        self._url = url
        self._deadline = deadline_s
        self._token = token
        self._context: Any = None
        self._socket: Any = None
        self._monitor: Any = None

    def __str__(self) -> str:
        return self._url

    def call(self, endpoint: str, data: Mapping[str, Any] | None = None) -> Any:
        """What the server replies.

        Raises:
            CallFailed: There is no reply, it came too late, or it makes no sense.
            PolicyError: The server does not know us.
        """
        request: dict[str, Any] = {"endpoint": endpoint}
        if data is not None:
            request["data"] = data
        if self._token:
            request["api_token"] = self._token
        reply = self._exchange(pack(request))
        if reply == b"ERROR":
            raise CallFailed(f"{self._url} replied ERROR. Look at the server's own output.")
        try:
            content = unpack(reply)
        except ValueError as error:
            raise CallFailed(
                f"{self._url} sent {len(reply)} bytes that cannot be read: {error}."
            ) from error
        if isinstance(content, dict) and "error" in content:
            said = " ".join(str(content["error"]).split())[:300]
            if said.startswith("Unauthorized"):
                raise PolicyError(
                    f"{self._url} wants an API token ({said}). Put it into an environment variable "
                    "and name that: api_token_env."
                )
            raise CallFailed(f"{self._url} replied with an error: {said!r}.")
        return content

    def _exchange(self, request: bytes) -> bytes:
        until = time.monotonic() + self._deadline
        try:
            self._open()
            wait = min(_CONNECT_S, self._deadline)
            if not self._socket.poll(1e3 * wait, self._zmq.POLLOUT):
                raise NobodyListens(f"Nothing that speaks ZeroMQ listens at {self._url}.")
            while self._monitor.poll(0):  # of an earlier connection that the socket mended itself
                self._monitor.recv_multipart()
            self._socket.send(request)
            poller = self._zmq.Poller()
            poller.register(self._socket, self._zmq.POLLIN)
            poller.register(self._monitor, self._zmq.POLLIN)
            happened = dict(poller.poll(1e3 * max(0.0, until - time.monotonic())))
            if self._socket in happened:
                return self._received(self._socket.recv(copy=False))
            if self._monitor in happened:
                raise NoAnswer(f"{self._url} closed the connection before it replied.")
            raise NoAnswer(
                f"{self._url} gave no answer within {self._deadline:g} s. Raise deadline_s if it "
                "is only slow."
            )
        except self._zmq.ZMQError as error:
            self.drop()
            raise NoAnswer(f"The connection to {self._url} broke ({error}).") from error
        except NoAnswer:
            self.drop()
            raise

    def _received(self, frame: Any) -> bytes:
        size = len(frame.buffer)
        if size > LARGEST_ANSWER:
            raise CallFailed(
                f"{self._url} sent {size >> 20} MiB, and a chunk of actions has a few thousand "
                "bytes. Is it a GR00T server?"
            )
        return bytes(frame.buffer)

    def _open(self) -> None:
        if self._socket is not None:
            return
        if self._context is None:
            self._context = self._zmq.Context()
        self._socket = self._context.socket(self._zmq.REQ)
        self._socket.setsockopt(self._zmq.LINGER, 0)
        # Nothing is queued for a server that is not there, so that its absence shows.
        self._socket.setsockopt(self._zmq.IMMEDIATE, 1)
        self._socket.setsockopt(self._zmq.MAXMSGSIZE, _LARGEST_FRAME)
        self._monitor = self._socket.get_monitor_socket(self._zmq.EVENT_DISCONNECTED)
        self._socket.connect(self._url)

    def drop(self) -> None:
        """Close the socket; the next call makes another."""
        if self._socket is not None:
            with contextlib.suppress(self._zmq.ZMQError):
                self._socket.disable_monitor()
            self._socket.close(0)
        if self._monitor is not None:
            self._monitor.close(0)
        self._socket = self._monitor = None

    def close(self) -> None:
        """Free everything."""
        self.drop()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None
