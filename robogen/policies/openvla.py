"""OpenVLA and openvla-oft behind their own REST server: ``POST /act`` with json_numpy."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable, unknown
from robogen.policies.base import Policy
from robogen.policies.declared import Declaration, blank
from robogen.policies.remote import (
    LARGEST_ANSWER,
    CallFailed,
    NoAnswer,
    NobodyListens,
    RemotePool,
    chunk_of,
    gripper_decided,
)
from robogen.policies.wire import optional
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

Encoding = Literal["plain", "double"]
ENCODINGS: tuple[Encoding, ...] = ("plain", "double")
PATH = "/act"
_CONNECT_S = 5.0
_WORTH_A_TRY = (408, 425, 429)
"""Refusals that say "later"."""
_BASE = PolicySpec(
    observation=ObservationSpec(instruction=True),
    action=ActionSpec(gripper="open_positive", gripper_range="unit"),
)
"""What OpenVLA's checkpoints share: tool deltas and RLDS's gripper, 0 closed to 1 open."""


class OpenVLAPolicy(Policy):
    """Asks one or several OpenVLA servers, each one question at a time.

    Args:
        servers: Address, ``http://host:port``, or several that serve the same checkpoint.
        unnorm_key: Name of the statistics that actions are un-normalised with: a key of the
            checkpoint's ``dataset_statistics.json`` or of ``norm_stats`` in its ``config.json``.
        encoding: ``plain``: the request is one json_numpy document; ``double``: it is that document
            as text under the key ``encoded``, for servers whose json is not patched.
        cameras: Image keys of the request to the scene's cameras; null takes the scene's next one.
            OpenVLA has one, ``image``; openvla-oft ``full_image`` and any with ``wrist`` in its
            name.
        size: Edge length or [width, height] [pixels] of the images that are sent.
        state: State parts sent under ``state``, for openvla-oft with proprioception.
        observation: Further conventions of images: orientation, crop and so on.
        action: Conventions of actions; ``chunk`` is the number of actions in an answer.
        binary_gripper: Whether the gripper is told to open or close fully, at the middle of its
            range, as the published evaluations do.
        model: What is served, for the manifest: a server does not say.
        deadline_s: Longest wait for one answer [s].
        retries: Further tries of a question that got none.
        backoff_s: Wait before the second try [s]; doubles with each further one.
        deterministic: Whether equal observations give bit-equal actions.

    Raises:
        ConfigError: A parameter is missing or wrong, or a package is not installed.
    """

    practical: ClassVar[frozenset[str]] = frozenset(
        {"servers", "deadline_s", "retries", "backoff_s"}
    )

    def __init__(
        self,
        *,
        servers: str | Sequence[str],
        unnorm_key: str | None = None,
        encoding: Encoding = "plain",
        cameras: Any = None,
        size: Any = 224,
        state: Sequence[str] = (),
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        binary_gripper: bool = True,
        model: str | None = None,
        deadline_s: float = 20.0,
        retries: int = 4,
        backoff_s: float = 0.2,
        deterministic: bool = False,
    ) -> None:
        if not isinstance(unnorm_key, str) or not unnorm_key:
            raise ConfigError(
                f"unnorm_key must be the name of the statistics that actions are un-normalised "
                f"with, got {unnorm_key!r}. The network predicts normalised actions, and with the "
                "statistics of another dataset the arm moves too far, too little or askew without "
                "any error. The names are the keys of dataset_statistics.json beside a fine-tuned "
                "checkpoint, or of norm_stats in config.json of a published one, e.g. bridge_orig "
                "or libero_spatial: give `policy.NAME.unnorm_key=...`, or the key in its file."
            )
        if encoding not in ENCODINGS:
            raise ConfigError(unknown("encoding", str(encoding), ENCODINGS, "Choose one of these."))
        if isinstance(deadline_s, bool) or not 0 < deadline_s < math.inf:
            raise ConfigError(f"deadline_s must be above 0 seconds, got {deadline_s!r}.")
        if cameras is None:
            cameras = {"image": None}
        self._json = optional("json_numpy", "openvla")
        self._encoding = encoding
        self._unnorm_key = unnorm_key
        self._model = model
        self._binary_gripper = binary_gripper
        self._declared = Declaration.read(
            cameras=cameras,
            size=size,
            state=state,
            observation=observation,
            action=action,
            base=_BASE,
            deterministic=deterministic,
        )
        clash = {"instruction", "unnorm_key", "state", "encoded"} & set(self._declared.views)
        if clash:
            raise ConfigError(
                f"'{min(clash)}' is another key of the request and cannot be an image's. Rename it "
                "in `cameras`."
            )
        seen = self._declared.spec.observation
        if (seen.layout, seen.pixels, seen.history) != ("hwc", "uint8", (0,)):
            raise ConfigError(
                "OpenVLA's server takes the current frame as rows of uint8 pixels: layout must be "
                f"hwc, pixels uint8 and history [0], got {seen.layout}, {seen.pixels} and "
                f"{list(seen.history)}. Remove them from `observation`."
            )
        self._cameras: Mapping[str, str] = {key: key for key in self._declared.views}
        self.spec = self._declared.spec
        alone = isinstance(servers, str) or not isinstance(servers, Sequence)
        addresses = [servers] if alone else servers
        ends = [_Server(address(one), deadline_s) for one in addresses]
        self._pool: RemotePool[_Server, bytes] = RemotePool(
            endpoints=ends,
            exchange=self._exchange,
            retries=retries,
            backoff_s=backoff_s,
            what="OpenVLA server",
        )

    def fit(self, scene: SceneSpec) -> None:
        """Take cameras and rate that are left to the scene; see that somebody is there to ask.

        Raises:
            PolicyUnavailable: Nothing listens at any address.
            PolicyError: A first question found no usable answer.
        """
        fitted = self._declared.fitted(scene)
        self.spec, self._cameras = fitted.spec, fitted.cameras
        absent = [problem for one in self._pool.endpoints if (problem := one.absent())]
        if len(absent) == len(self._pool.endpoints):
            raise PolicyUnavailable(
                f"No OpenVLA server answers: {'; '.join(absent)}. Start it (`python "
                "vla-scripts/deploy.py` in OpenVLA's environment), or correct `servers`."
            )
        if not set(self.spec.observation.state) - set(scene.state):
            self._pool.try_out(self._request(blank(self.spec.observation, scene)))

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """Chunks of actions as the servers answered."""
        del rows
        chunks = np.stack(self._pool.ask([self._request(seen) for seen in observations]))
        return gripper_decided(chunks, self.spec.action) if self._binary_gripper else chunks

    def identity(self) -> dict[str, str]:
        """The statistics' name, the request's form and what the user says is served."""
        told = {} if self._model is None else {"model": self._model}
        return {"unnorm_key": self._unnorm_key, "binary_gripper": str(self._binary_gripper)} | told

    def close(self) -> None:
        """Close the connections."""
        for server in self._pool.endpoints:
            server.close()

    def _request(self, seen: Observation) -> bytes:
        content: dict[str, Any] = {
            key: np.ascontiguousarray(seen.images[camera]) for key, camera in self._cameras.items()
        }
        content["instruction"] = seen.instruction
        content["unnorm_key"] = self._unnorm_key
        if self.spec.observation.state:
            content["state"] = np.asarray(seen.state, np.float32)
        text = self._json.dumps(content)
        if self._encoding == "double":
            text = json.dumps({"encoded": text})
        return bytes(text.encode())

    def _exchange(self, server: _Server, request: bytes) -> NDArray[np.float64]:
        answer = self._decoded(server.post(request), str(server))
        if isinstance(answer, Mapping):
            answer = next((answer[key] for key in ("action", "actions") if key in answer), answer)
        if isinstance(answer, Mapping | str) or answer is None:
            raise CallFailed(
                f"{server} answered with {_short(answer)} where actions belong. Is it an OpenVLA "
                "server?"
            )
        return chunk_of(answer, self.spec.action, str(server))

    def _decoded(self, body: bytes, source: str) -> Any:
        """What an answer holds: a document, or one within a text."""
        try:
            answer = self._json.loads(body.decode())
            if isinstance(answer, str) and answer == "error":
                raise CallFailed(
                    f"{source} answered 'error', as OpenVLA's server does for whatever went wrong "
                    "in it: look at its own output for the traceback. Usual causes: it does not "
                    f"know the unnorm_key '{self._unnorm_key}', or wants other keys than "
                    f"{', '.join(self._cameras)}, or another encoding than '{self._encoding}'."
                )
            return self._json.loads(answer) if isinstance(answer, str) else answer
        except CallFailed:
            raise
        except Exception as error:  # whatever the decoder makes of bytes that may be anything
            raise CallFailed(
                f"{source} answered with {len(body)} bytes that are not json_numpy "
                f"({_short(error)}): {_short(body[:80])}. Is it an OpenVLA server?"
            ) from error


class _Server:
    """One address and its connection; asked by one thread at a time."""

    def __init__(self, url: str, deadline_s: float) -> None:
        self._requests = optional("requests", "openvla")
        self._url = url
        self._deadline = deadline_s
        self._session = self._requests.Session()
        # Straight there: a proxy of the environment knows neither this machine nor the lab's.
        self._session.trust_env = False

    def __str__(self) -> str:
        return self._url

    def absent(self) -> str | None:
        """What is wrong with the address, None where something listens."""
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            wait = min(_CONNECT_S, self._deadline)
            socket.create_connection((parts.hostname or "", port), timeout=wait).close()
        except OSError as error:
            return f"{self._url} ({error})"
        return None

    def post(self, request: bytes) -> bytes:
        """Body of the answer.

        Raises:
            CallFailed: There is none, it came too late, or the server failed.
            PolicyError: The server does not take such requests.
        """
        from urllib3.exceptions import HTTPError, NewConnectionError

        until = time.monotonic() + self._deadline
        failures = self._requests.exceptions
        try:
            with self._session.post(
                self._url,
                data=request,
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                timeout=(min(_CONNECT_S, self._deadline), self._deadline),
                allow_redirects=False,
                stream=True,
            ) as response:
                body = self._body(response.raw, until)
                self._judge(response.status_code, body)
                return body
        except failures.ConnectTimeout as error:
            raise NobodyListens(f"{self._url} does not take connections.") from error
        except failures.Timeout as error:
            raise self._late() from error
        except failures.RequestException as error:
            reason = getattr(error.args[0], "reason", None) if error.args else None
            if isinstance(reason, NewConnectionError):
                raise NobodyListens(f"Nothing listens at {self._url}.") from error
            raise self._broken(error) from error
        except (HTTPError, OSError) as error:
            if time.monotonic() >= until:
                raise self._late() from error
            raise self._broken(error) from error

    def _body(self, raw: Any, until: float) -> bytes:
        """All of it, unless it is too long or takes too long."""
        parts: list[bytes] = []
        size = 0
        read = getattr(raw, "read1", None) or raw.read  # what is there, rather than all asked for
        while part := read(65536):
            parts.append(part)
            size += len(part)
            if size > LARGEST_ANSWER:
                raise CallFailed(
                    f"{self._url} sent more than {LARGEST_ANSWER >> 20} MiB, and a chunk of "
                    "actions has a few thousand bytes. Is it an OpenVLA server?"
                )
            if time.monotonic() > until:
                raise self._late()
        return b"".join(parts)

    def _judge(self, status: int, body: bytes) -> None:
        if status == 200:
            return
        said = f"{self._url} answered with HTTP {status}: {_short(body[:200])}."
        if 300 <= status < 500 and status not in _WORTH_A_TRY:
            raise PolicyError(
                f"{said} OpenVLA's server takes POST {PATH}. Correct `servers`, or the policy's "
                "encoding and cameras."
            )
        raise CallFailed(f"{said} Look at the server's own output.")

    def _late(self) -> NoAnswer:
        return NoAnswer(
            f"{self._url} gave no answer within {self._deadline:g} s. Raise deadline_s if it is "
            "only slow."
        )

    def _broken(self, error: Exception) -> NoAnswer:
        return NoAnswer(f"The connection to {self._url} broke ({_short(error)}).")

    def close(self) -> None:
        self._session.close()


def address(url: object) -> str:
    """A server's address with scheme and path.

    Raises:
        ConfigError: It is not one.
    """
    text = url if isinstance(url, str) else ""
    whole = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(whole)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if good and (parts.username or parts.password):
        raise ConfigError(
            "A server's address must not hold a name or password, because addresses are recorded. "
            "Leave them out, and let a proxy on this machine add them."
        )
    if not good or not text:
        raise ConfigError(f"servers must be addresses, e.g. http://localhost:8000; got {url!r}.")
    return whole.rstrip("/") + (PATH if parts.path in ("", "/") else "")


def _short(what: Any) -> str:
    text = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
    text = " ".join(text.split())
    return repr(text if len(text) <= 160 else text[:157] + "...")
