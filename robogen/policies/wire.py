"""What openpi's policy servers and clients send each other: msgpack, with arrays as small maps.

An array is ``{b"__ndarray__": True, b"data", b"dtype", b"shape"}`` and a NumPy scalar
``{b"__npgeneric__": True, b"data", b"dtype"}``, so bytes from here and from the public
``openpi-client`` read alike. Nothing is executed and no size is believed: what comes in may be
anything at all.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robogen.errors import ConfigError

_ARRAY, _SCALAR = b"__ndarray__", b"__npgeneric__"
_DATA, _DTYPE, _SHAPE = b"data", b"dtype", b"shape"
_KINDS = frozenset("biufSU")
"""Booleans, integers, floats, bytes and text; objects and structures would need trust."""
_MOST_AXES = 32


class WireError(ValueError):
    """Bytes that are not a message of the protocol, or a value that cannot become one."""


def optional(module: str, extra: str) -> Any:
    """A package that only some policies need.

    Args:
        module: What to import.
        extra: The optional group of robogen's that installs it.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"This needs the package '{module.partition('.')[0]}', which cannot be imported here "
            f"({error}). Install it with `pip install 'robogen[{extra}]'`."
        ) from error


def pack(message: Any) -> bytes:
    """A message as bytes.

    Args:
        message: Maps, lists, text, numbers, arrays of those and NumPy scalars, nested as wanted.

    Raises:
        WireError: Something in it has no form on the wire.
    """
    msgpack = optional("msgpack", "openpi")
    try:
        return bytes(msgpack.packb(message, default=_encoded))
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"This cannot be sent: {error}") from error


def unpack(data: bytes, *, limit: int | None = None) -> Any:
    """The message in some bytes; arrays share their memory and are read-only.

    Args:
        data: As received.
        limit: Most bytes that are looked at.

    Raises:
        WireError: They are no message, or too many.
    """
    msgpack = optional("msgpack", "openpi")
    if limit is not None and len(data) > limit:
        raise WireError(f"{len(data)} bytes are more than the {limit} allowed")
    try:
        return msgpack.unpackb(data, object_hook=_decoded)
    except WireError:
        raise
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise WireError(f"{len(data)} bytes that are not msgpack ({reason})") from error


def _encoded(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"a {type(value).__name__} has no form on the wire")
    if value.dtype.kind not in _KINDS:
        raise TypeError(f"arrays of {value.dtype} have no form on the wire")
    if isinstance(value, np.ndarray):
        return {
            _ARRAY: True,
            _DATA: value.tobytes(),
            _DTYPE: value.dtype.str,
            _SHAPE: value.shape,
        }
    return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}


def _decoded(value: dict[Any, Any]) -> Any:
    if _ARRAY in value:
        return _array(value)
    if _SCALAR in value:
        dtype, number = _dtype(value), value.get(_DATA)
        if not isinstance(number, bool | int | float | str | bytes):
            raise WireError(f"a scalar's data is a {type(number).__name__}")
        return dtype.type(number)
    return value


def _array(value: Mapping[Any, Any]) -> Any:
    dtype, data, shape = _dtype(value), value.get(_DATA), value.get(_SHAPE)
    if not isinstance(data, bytes):
        raise WireError(f"an array's data is a {type(data).__name__}, not bytes")
    if (
        not isinstance(shape, list | tuple)
        or len(shape) > _MOST_AXES
        or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in shape)
    ):
        raise WireError("an array's shape is not a short list of whole numbers")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted != len(data) or dtype.itemsize == 0:
        raise WireError(
            f"an array of shape {tuple(shape)} and type {dtype.str} has {len(data)} bytes, not "
            f"{wanted}"
        )
    return np.ndarray(tuple(shape), dtype, buffer=data)


def _dtype(value: Mapping[Any, Any]) -> np.dtype[Any]:
    text = value.get(_DTYPE)
    # Every type that is sent is short, e.g. '<f4'; longer ones describe structures.
    if not isinstance(text, str) or not 2 <= len(text) <= 16 or not text.isascii():
        raise WireError("an array's type is not a short text such as '<f4'")
    if text.lstrip("<>|=")[:1] not in _KINDS or not text.lstrip("<>|=")[1:].isdigit():
        raise WireError(f"arrays of type '{text}' are not accepted")
    return np.dtype(text)
