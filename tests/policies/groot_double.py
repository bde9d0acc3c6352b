"""A server that behaves as GR00T's is documented to, and misbehaves when told."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np
import zmq

MODALITIES = {
    "video": {"delta_indices": [0], "modality_keys": ["image", "wrist_image"]},
    "state": {
        "delta_indices": [0],
        "modality_keys": ["x", "y", "z", "roll", "pitch", "yaw", "gripper"],
    },
    "action": {
        "delta_indices": list(range(16)),
        "modality_keys": ["x", "y", "z", "roll", "pitch", "yaw", "gripper"],
    },
    "language": {
        "delta_indices": [0],
        "modality_keys": ["annotation.human.action.task_description"],
    },
}


def encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return {"__ndarray_class__": True, "as_npy": file.getvalue()}
    raise TypeError(type(value))


def decode(value: dict[Any, Any]) -> Any:
    if "__ndarray_class__" in value:
        return np.load(io.BytesIO(value["as_npy"]), allow_pickle=False)
    return value


def modality(fields: Mapping[str, Any], form: str) -> dict[str, Any]:
    inner: Any = json.dumps(fields) if form == "text" else dict(fields)
    return {
        "__ModalityConfig_class__": True,
        ("as_dict" if form == "as_dict" else "as_json"): inner,
    }


def moves(
    video: list[np.ndarray], state: list[np.ndarray], words: str, horizon: int, dim: int = 7
) -> np.ndarray:
    """Actions that follow from the question alone: small moves and a gripper of 0 or 1."""
    seed = sum(float(a.astype(np.float64).mean()) for a in (*video, *state)) + len(words)
    whole = 0.5 * np.sin(seed + np.arange(horizon * dim)).reshape(horizon, dim)
    whole[:, -1] = whole[:, -1] > 0
    return whole.astype(np.float32)


class GrootDouble:
    """Serves on a free port of the loopback interface.

    Args:
        protocol: ``nested``, ``batched_flat`` or ``flat``.
        modalities: What ``get_modality_config`` tells; None: the endpoint is unknown.
        form: How it tells them: ``mapping``, ``text`` or ``as_dict``.
        widths: Numbers of each action key, where more than one.
        fault: Number of the get_action request, from 0, to a misbehaviour or None.
        token: API token, if one is wanted.
        port: Port to listen at; 0 for a free one.
        late_s: How long ``late`` takes.
    """

    def __init__(
        self,
        *,
        protocol: str = "nested",
        modalities: Mapping[str, Any] | None = MODALITIES,
        form: str = "mapping",
        widths: Mapping[str, int] | None = None,
        fault: Callable[[int], str | None] = lambda number: None,
        token: str | None = None,
        port: int = 0,
        late_s: float = 1.0,
    ) -> None:
        self.protocol = protocol
        self.modalities = modalities
        self.form = form
        self.widths = widths or {}
        self.fault = fault
        self.token = token
        self.late_s = late_s
        self.questions: list[dict[str, Any]] = []
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        address = f"tcp://127.0.0.1:{port or '*'}"
        self.socket.bind(address)
        self.url = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = int(self.url.rpartition(":")[2])
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.socket.poll(10):
                continue
            request = msgpack.unpackb(self.socket.recv(), object_hook=decode)
            reply = self._reply(request)
            if reply is None:
                break  # dies with the question in hand
            self.socket.send(reply, copy=False)
        self.socket.close(0)
        self.context.term()

    def _reply(self, request: dict[str, Any]) -> bytes | None:
        def told(what: Any) -> bytes:
            return bytes(msgpack.packb(what, default=encode))

        if self.token is not None and request.get("api_token") != self.token:
            return told({"error": "Unauthorized: Invalid API token"})
        endpoint = request.get("endpoint", "get_action")
        if endpoint == "ping":
            return told({"status": "ok", "message": "Server is running"})
        if endpoint == "get_modality_config" and self.modalities is not None:
            return told({k: modality(v, self.form) for k, v in self.modalities.items()})
        if endpoint != "get_action":
            return told({"error": f"Unknown endpoint: {endpoint}"})
        number = len(self.questions)
        self.questions.append(request["data"])
        fault = self.fault(number)
        if fault == "die":
            return None
        if fault == "late":
            self._stop.wait(self.late_s)
        if fault == "error":
            return told({"error": "CUDA out of memory"})
        if fault == "garbage":
            return b"\xc1" * 40
        if fault == "pickle":
            return b"\x80\x04\x95garbage"
        if fault == "object":
            file = io.BytesIO()
            np.save(file, np.array([{}]), allow_pickle=True)
            return bytes(
                msgpack.packb({"x": {"__ndarray_class__": True, "as_npy": file.getvalue()}})
            )
        if fault == "huge":
            return b"\x00" * (100 << 20)
        try:
            actions = self._act(request["data"])
        except Exception as error:
            return told({"error": repr(error)})
        if fault == "nan":
            actions = {key: np.full_like(value, np.nan) for key, value in actions.items()}
        if fault == "shape":
            actions = {key: value[..., :5, :] for key, value in actions.items()}
        if fault == "key":
            actions.popitem()
        return told(actions if self.protocol == "flat" else [actions, {}])

    def _act(self, data: dict[str, Any]) -> dict[str, np.ndarray]:
        told = self.modalities or MODALITIES
        keys = {kind: told[kind]["modality_keys"] for kind in told}
        horizon = len(told["action"]["delta_indices"])
        steps = len(told["video"]["delta_indices"])
        (language,) = keys["language"]
        if self.protocol == "flat":
            seen = data
        else:
            assert set(data) == {"observation", "options"}
            seen = data["observation"]
        if self.protocol == "nested":
            assert set(seen) == {"video", "state", "language"}
            video = [seen["video"][key] for key in keys["video"]]
            state = [seen["state"][key] for key in keys["state"]]
            ((words,),) = seen["language"][language]
        else:
            video = [seen[f"video.{key}"] for key in keys["video"]]
            state = [seen[f"state.{key}"] for key in keys["state"]]
            (words,) = seen[language]
        lead = (steps,) if self.protocol == "flat" else (1, steps)
        for frame in video:
            assert frame.dtype == np.uint8
            assert frame.shape[:-3] == lead
            assert frame.shape[-1] == 3
        for numbers in state:
            assert numbers.dtype == np.float32
            assert numbers.shape[:-1] == lead
        widths = [self.widths.get(key, 1) for key in keys["action"]]
        whole = moves(video, state, words, horizon, sum(widths))
        cuts = np.split(whole, np.cumsum(widths)[:-1], axis=1)
        parts = dict(zip(keys["action"], cuts, strict=True))
        if self.protocol == "flat":
            return {f"action.{key}": part[:, 0] for key, part in parts.items()}
        prefix = "" if self.protocol == "nested" else "action."
        return {f"{prefix}{key}": part[None] for key, part in parts.items()}

    def close(self) -> None:
        self._stop.set()
        self.thread.join()

    def __enter__(self) -> GrootDouble:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
