"""A server that behaves as OpenVLA's deploy.py is documented to, and misbehaves when told."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import json_numpy
import numpy as np


def moves(request: dict[str, Any], chunk: int = 1, dim: int = 7) -> np.ndarray:
    """Actions that follow from the request alone: small moves, gripper 0 or 1."""
    numbers = [float(v.astype(np.float64).mean()) for v in request.values() if hasattr(v, "mean")]
    seed = sum(numbers) + len(request["instruction"])
    actions = 0.5 * np.sin(seed + np.arange(chunk * dim)).reshape(chunk, dim)
    actions[:, -1] = actions[:, -1] > 0
    return actions


class OpenVLADouble:
    """Serves on a free port of the loopback interface.

    Args:
        answer: Request to what is answered; raising makes it "error", as the original does.
        fault: Number of the request, from 0, to a misbehaviour or None.
        wire: ``numpy``: one array; ``list``: a list of arrays, as openvla-oft answers.
        port: Port to listen at; 0 for a free one.
        late_s: How long ``late`` takes.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Any] = lambda request: moves(request)[0],
        *,
        fault: Callable[[int], str | None] = lambda number: None,
        wire: str = "numpy",
        port: int = 0,
        late_s: float = 1.0,
    ) -> None:
        self.answer = answer
        self.fault = fault
        self.wire = wire
        self.late_s = late_s
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[dict[str, Any]] = []
        self.dead = False
        self._lock = threading.Lock()
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                double.serve(self)

            def log_message(self, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        if self.dead:
            handler.close_connection = True
            return
        if handler.path != "/act":
            self.send(handler, 404, b'{"detail": "Not Found"}')
            return
        with self._lock:
            number = len(self.bodies)
            self.bodies.append(body)
        double = "encoded" in body
        request = json_numpy.loads(body["encoded"] if double else json.dumps(body))
        self.requests.append(request)
        fault = self.fault(number)
        try:
            action = self.answer(request)
        except Exception:
            fault = fault or "error"
            action = None
        if fault == "late":
            time.sleep(self.late_s)
        if fault == "close":
            handler.close_connection = True
            return
        if fault == "error":
            self.send(handler, 200, b'"error"')
        elif fault == "500":
            self.send(handler, 500, b"Internal Server Error")
        elif fault == "garbage":
            self.send(handler, 200, bytes(range(128, 256)))
        elif fault == "huge":
            self.send(handler, 200, b'"' + b"x" * (100 << 20) + b'"')
        elif fault == "trickle":
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.close_connection = True
            with contextlib.suppress(OSError):  # the client has had enough
                for _ in range(40):
                    handler.wfile.write(b" ")
                    time.sleep(0.05)
        else:
            if fault == "nan":
                action = np.full_like(action, np.nan)
            if fault == "shape":
                action = np.asarray(action)[..., :5]
            if fault == "null":
                action = None
            if self.wire == "list":
                action = list(action)
            text = json_numpy.dumps(action)
            self.send(handler, 200, (json.dumps(text) if double else text).encode())

    def send(self, handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:  # the client has had enough
            handler.close_connection = True

    def close(self) -> None:
        self.dead = True  # for connections that are open
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self) -> OpenVLADouble:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
