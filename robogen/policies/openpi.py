"""Policies behind openpi's websocket protocol: openpi's own server, ``robogen serve``, others'."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable, SpecError
from robogen.policies import wire
from robogen.policies.base import Policy
from robogen.policies.declared import action_spec, blank, observation_spec
from robogen.policies.layout import Layout
from robogen.policies.remote import CallFailed, RemotePool, chunk_of, gripper_decided
from robogen.policies.served import (
    OURS,
    Served,
    differences,
    digest,
    nothing_declared,
    refuse_differences,
    renaming,
    understood,
)
from robogen.policies.websocket import Link, address, on_each
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

_TRY_OUTS = 4
"""Requests before the first episode, for servers that fail now and then."""


class OpenPIPolicy(Policy):
    """Asks policy servers that speak openpi's protocol.

    Without ``images``, ``state`` and ``action`` the server must be a ``robogen serve``, and what it
    says of its policy is taken; otherwise they say what the server wants, see docs/openpi.md.

    Args:
        servers: Address or list of addresses, asked in parallel; ``ws://host:port``.
        images: Wire key to camera, with ``size`` and ``drawn``.
        state: Wire key to a state part or a list of them.
        prompt: Wire key of the instruction; None for policies that read none.
        extras: Constants that every request carries, by wire key.
        nested: Whether a slash in a wire key means a map in a map.
        observation: Further fields of ``ObservationSpec``: orientation, fit, layout and so on.
        action: Fields of ``ActionSpec``; without ``control_hz`` the scene's rate is taken.
        binary_gripper: Whether the gripper opens or closes fully, parted at mid range.
        execute: Actions of an answer that are executed, instead of what ``action`` or the server
            says.
        cameras: Scene cameras by wire key, instead of what ``images`` or the server says.
        connections: Per server; more than one helps with servers that answer in batches.
        deadline_s: For one answer.
        retries: Further tries of a request.
        backoff_s: Pause before a try again; doubles each time.
        wait_s: How long to wait at the start for a server to appear.
        warm_up: Whether to ask each server once, with black frames, before the first episode: that
            shows what it makes of the layout, and compiled policies compile then.
        warm_up_s: Deadline of that.
        api_key_env: Environment variable that holds the server's key.
        max_answer_mb: Largest answer.
        ignore_metadata: Keys of the servers' metadata that do not tell one policy from another.
        label: What the server serves, for the manifest; the protocol does not say.
        deterministic: Whether equal observations give bit-equal actions.

    Raises:
        ConfigError: A parameter is of another form.
    """

    practical: ClassVar[frozenset[str]] = frozenset(
        {
            "servers", "connections", "deadline_s", "retries", "backoff_s", "wait_s", "warm_up",
            "warm_up_s", "api_key_env", "max_answer_mb",
        }
    )  # fmt: skip

    def __init__(
        self,
        *,
        servers: str | Sequence[str],
        images: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        prompt: str | None = "prompt",
        extras: Mapping[str, Any] | None = None,
        nested: bool = False,
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        binary_gripper: bool = False,
        execute: int | None = None,
        cameras: Mapping[str, str] | None = None,
        connections: int = 1,
        deadline_s: float = 20.0,
        retries: int = 5,
        backoff_s: float = 0.25,
        wait_s: float = 0.0,
        warm_up: bool = True,
        warm_up_s: float = 300.0,
        api_key_env: str | None = None,
        max_answer_mb: float = 16.0,
        ignore_metadata: Sequence[str] = (),
        label: str | None = None,
        deterministic: bool = False,
    ) -> None:
        _refuse_bad_numbers(
            connections=(connections, 1),
            deadline_s=(deadline_s, 1e-3),
            wait_s=(wait_s, 0.0),
            warm_up_s=(warm_up_s, 1e-3),
            max_answer_mb=(max_answer_mb, 1e-3),
        )
        self._own = any(item is not None for item in (images, state, action))
        self._layout = Layout.read(
            images=images, state=state, prompt=prompt, extras=extras, nested=nested
        )
        if self._own and (action is None or not (self._layout.images or self._layout.state)):
            raise ConfigError(
                "A layout of one's own needs images or state, and action: what a request holds and "
                "how the answer is read. Add them, or leave all out for a `robogen serve`."
            )
        if not self._own and (observation or extras or nested):
            raise ConfigError(
                "observation, extras and nested belong to a layout, and images, state and action "
                "are missing. Add them, or leave all out for a `robogen serve`."
            )
        if not isinstance(cameras or {}, Mapping):
            raise ConfigError(f"cameras must map wire keys to a scene's cameras, got {cameras!r}.")
        self._cameras = dict(cameras or {})
        self._binary_gripper = binary_gripper
        self._execute, self._deterministic = execute, deterministic
        self._wait_s, self._warm_up, self._warm_up_s = wait_s, warm_up, warm_up_s
        self._deadline_s = deadline_s
        self._label = label
        self._ignored = frozenset(map(str, ignore_metadata))
        self._token = uuid.uuid4().hex
        """Tells this client's rows from those of others at a server."""
        self._episodes: dict[int, tuple[int, int]] = {}
        """How many episodes a row has had, and the seed of the present one."""
        self._sizes: Mapping[str, int] = {}
        self._metadata: Mapping[str, Any] | None = None
        self._served: Served | None = None
        self.spec = nothing_declared(deterministic=deterministic)
        if self._own:
            self._layout = self._layout.renamed(self._cameras)
            self.spec = self._declared(observation_spec(observation), action_spec(action))
        self._rate = not self._own or (action or {}).get("control_hz") is not None
        headers, limit = _headers(api_key_env), int(1e6 * max_answer_mb)
        urls = [address(url) for url in ([servers] if isinstance(servers, str) else servers or ())]
        self._links = [
            Link(url, headers=headers, limit=limit, check=self._refuse_another)
            for _ in range(connections)
            for url in urls
        ]
        self._pool: RemotePool[Link, bytes] = RemotePool(
            endpoints=self._links,
            exchange=lambda link, message: self._exchange(link, message, self._deadline_s),
            retries=retries,
            backoff_s=backoff_s,
        )
        self._first = self._links[: len(urls)]
        """One connection per server."""

    def _declared(self, observation: ObservationSpec, action: ActionSpec) -> PolicySpec:
        if self._execute is not None:
            action = replace(action, execute=self._execute)
        if not isinstance(action.execute, int) or not 1 <= action.execute <= action.chunk:
            raise ConfigError(
                f"execute must be a whole number from 1 to {action.chunk}, the chunk length, got "
                f"{action.execute!r}. Choose one in that range."
            )
        return PolicySpec(
            observation=self._layout.wanted(observation),
            action=action,
            deterministic=self._deterministic,
        )

    # -- before the first episode ----------------------------------------------------------------

    def fit(self, scene: SceneSpec) -> None:
        """Meet the servers, and settle and check what they want.

        Raises:
            PolicyError: Nobody is there, or what is there does not answer requests of this layout.
            SpecError: The server's conventions are not those of the layout, or the scene has other
                cameras.
        """
        self._sizes = scene.state
        if not self._rate:
            action = replace(self.spec.action, control_hz=scene.control_hz)
            self.spec = replace(self.spec, action=action)
        if self._metadata is None:
            metadata = self._met()
            self._take(understood(metadata))
            self._metadata = metadata
        self._refuse_unknown_cameras(scene)
        if self._warm_up and all(part in scene.state for part in self.spec.observation.state):
            self._try_out(blank(self.spec.observation, scene))
            self._warm_up = False

    def _met(self) -> Mapping[str, Any]:
        """Metadata that the servers agree on."""
        until = time.monotonic() + self._wait_s

        def metadata(link: Link) -> Any:
            while True:
                try:
                    link.open()
                    return link.metadata
                except CallFailed:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.2)

        found = on_each(self._first, metadata)
        there = {
            str(link): data
            for link, data in zip(self._first, found, strict=True)
            if isinstance(data, Mapping)
        }
        if not there:
            why = " ".join(
                str(data) if isinstance(data, CallFailed) else f"{link} began with no metadata."
                for link, data in zip(self._first, found, strict=True)
            )
            raise PolicyError(
                f"No policy server answers. {why} Start it, or correct "
                "policy.NAME.servers=[ws://host:port]; policy.NAME.wait_s=60 waits for one that is "
                "starting."
            )
        (url, first), *others = there.items()
        for other, data in others:
            if different := differences(first, data, self._ignored):
                raise SpecError(
                    f"The servers serve different policies: {url} and {other} differ in "
                    f"{different}. Name servers of one policy. What may differ, a host's name say, "
                    "is named in policy.NAME.ignore_metadata=[KEY]."
                )
        return {key: value for key, value in first.items() if key not in self._ignored}

    def _refuse_another(self, link: Link) -> None:
        """A server that was started again may have another checkpoint.

        Raises:
            PolicyUnavailable: It has.
        """
        if self._metadata is None:
            return
        found = link.metadata if isinstance(link.metadata, Mapping) else {}
        if different := differences(self._metadata, found, self._ignored):
            raise PolicyUnavailable(
                f"{link} serves another policy than the study began with: they differ in "
                f"{different}. Episodes of both must not mix, so the study stops. Serve the first "
                "again and give the same command to go on, or evaluate the other one in another "
                "run folder. What changes at every start of a server is named in "
                "policy.NAME.ignore_metadata=[KEY]."
            )

    def _take(self, served: Served | None) -> None:
        """Take what the server says of its policy, or compare it with the layout."""
        self._served = served
        if served is None:
            if not self._own:
                raise PolicyError(
                    "The server does not say what its policy reads, which only `robogen serve` "
                    "does, and no layout was given. Choose a policy file with one, such as "
                    "openpi_libero, or write images, state and action as docs/openpi.md shows."
                )
            return
        if self._own:
            refuse_differences((self._layout, self.spec), served)
            return
        self._layout = served.layout.renamed(self._cameras)
        self.spec = self._declared(served.spec.observation, served.spec.action)
        self.scene = served.scene

    def _refuse_unknown_cameras(self, scene: SceneSpec) -> None:
        wanted = {key: picture.camera for key, picture in self._layout.images.items()}
        if all(camera in scene.cameras for camera in wanted.values()):
            return
        pairs = ", ".join(f"{key}: {name}" for key, name in renaming(wanted, scene.cameras).items())
        raise SpecError(
            f"The layout sends cameras {', '.join(dict.fromkeys(wanted.values()))}, and scene "
            f"'{scene.name}' has {', '.join(scene.cameras) or 'none'}. Say which is which, for "
            f"example policy.NAME.cameras='{{{pairs}}}'."
        )

    def _try_out(self, observation: Observation) -> None:
        """One request of black frames to every server."""
        message = self._message(observation, "try-out", (0, 0))
        until = time.monotonic() + self._warm_up_s
        for _ in range(_TRY_OUTS):
            found = on_each(
                self._first, lambda link: self._exchange(link, message, self._warm_up_s)
            )
            problems = [what for what in found if isinstance(what, CallFailed)]
            if len(problems) < len(found):
                return  # others are asked again when it counts
            if time.monotonic() > until:
                break
        raise PolicyError(
            f"A first request of this layout, with black frames, got no usable answer. "
            f"{problems[0]} Compare the layout (keys, sizes, action.chunk, action.dim) with what "
            "the server was made for."
        )

    # -- queries ---------------------------------------------------------------------------------

    def reset(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Episodes begin in these rows; a ``robogen serve`` is told with the next request."""
        for row, seed in zip(rows, seeds, strict=True):
            self._episodes[row] = (self._episodes.get(row, (0, 0))[0] + 1, seed)

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """The servers' chunks, one request per row.

        Raises:
            RowsFailed: Some rows found no usable answer, however often they were asked.
            PolicyUnavailable: Nobody answers any more.
        """
        messages = [
            self._message(observation, str(row), self._episodes.get(row, (0, 0)))
            for row, observation in zip(rows, observations, strict=True)
        ]
        return np.stack(self._pool.ask(messages))

    def _message(self, observation: Observation, row: str, episode: tuple[int, int]) -> bytes:
        message = self._layout.message(observation, self._sizes)
        if OURS in (self._metadata or {}):
            number, seed = episode
            message[OURS] = {
                "row": f"{self._token}/{row}",
                "episode": number,
                "seed": seed,
                "step": observation.step,
            }
        return wire.pack(message)

    def _exchange(self, link: Link, message: bytes, deadline_s: float) -> NDArray[np.float64]:
        answer = link.ask(message, deadline_s)
        if not isinstance(answer, Mapping) or "actions" not in answer:
            keys = ", ".join(map(str, answer)) if isinstance(answer, Mapping) else ""
            raise CallFailed(f"{link} answered without 'actions' (it sent {keys or 'no keys'}).")
        try:
            chunk = chunk_of(answer["actions"], self.spec.action, str(link))
        except PolicyError as error:  # another try, or another server, may do better
            raise CallFailed(str(error)) from error
        return gripper_decided(chunk, self.spec.action) if self._binary_gripper else chunk

    def identity(self) -> dict[str, str]:
        """What the layout and the server say of themselves; addresses are no part of it."""
        found = {"layout": digest(self._told())}
        if self._served is not None:
            found |= {f"served {key}": value for key, value in self._served.identity.items()}
        else:
            found["server"] = digest(self._metadata)
        return found if self._label is None else {**found, "label": str(self._label)}

    def _told(self) -> dict[str, Any]:
        """What was said here and changes answers."""
        extras = dict(self._layout.extras)
        return {**self._layout.described(), "extras": extras, "binary": self._binary_gripper}

    def close(self) -> None:
        """Drop the connections."""
        for link in self._links:
            link.close()


def _refuse_bad_numbers(**numbers: tuple[Any, float]) -> None:
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            raise ConfigError(f"{name} must be a number of at least {least:g}, got {value!r}.")


def _headers(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(str(variable), "").strip()
    if not key:
        raise ConfigError(
            f"api_key_env names the environment variable '{variable}', which is not set. Set it to "
            "the server's key; the key itself does not belong on the command line."
        )
    return {"Authorization": f"Api-Key {key}"}
