"""What a ``robogen serve`` says of its policy in its metadata, and how a client reads that."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from robogen.errors import ConfigError, SpecError
from robogen.policies import wire
from robogen.policies.base import Policy
from robogen.policies.declared import action_spec, observation_spec
from robogen.policies.layout import Layout
from robogen.specs import ActionSpec, ObservationSpec, PolicySpec

OURS = "robogen"
"""Key of a server's metadata under which it describes itself, and of a request under which the
client then says which episode it belongs to."""
_IN_LAYOUT = ("cameras", "state", "instruction")
"""Fields of an observation spec that the layout has."""

_WRIST = ("wrist", "hand", "gripper")
"""What names of cameras on the arm contain."""


class Served(NamedTuple):
    """A policy at the other end."""

    spec: PolicySpec
    layout: Layout
    scene: str | None
    """Scene the policy was trained for."""
    identity: Mapping[str, str]


def description(name: str, policy: Policy, layout: Layout) -> dict[str, Any]:
    """Metadata of a server, in text, numbers, lists and maps."""
    observation = _plain(asdict(policy.spec.observation))
    return {
        OURS: {
            "policy": name,
            "scene": policy.scene,
            "identity": dict(policy.identity()),
            "layout": layout.described(),
            "spec": {
                "observation": {k: v for k, v in observation.items() if k not in _IN_LAYOUT},
                "action": _plain(asdict(policy.spec.action)),
            },
        }
    }


def understood(metadata: Mapping[str, Any]) -> Served | None:
    """What a server's metadata says of its policy; None where it says nothing.

    Raises:
        SpecError: It says something in words that this version does not know.
    """
    ours = metadata.get(OURS)
    if not isinstance(ours, Mapping) or "spec" not in ours:
        return None
    try:
        layout = Layout.read(**ours["layout"])
        spec = PolicySpec(
            observation=layout.wanted(observation_spec(ours["spec"]["observation"])),
            action=action_spec(ours["spec"]["action"]),
        )
        scene, identity = ours.get("scene"), ours.get("identity") or {}
        return Served(
            spec=spec,
            layout=layout,
            scene=None if scene is None else str(scene),
            identity={str(key): str(value) for key, value in identity.items()},
        )
    except (ConfigError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"The server's description of its policy cannot be read: {error} Use the same version "
            "of robogen on both sides."
        ) from error


def refuse_differences(mine: tuple[Layout, PolicySpec], theirs: Served) -> None:
    """Compare a client's own layout with what the server says.

    Raises:
        SpecError: They differ; each difference is named with both sides.
    """
    here, there = _facts(*mine), _facts(theirs.layout, theirs.spec)
    wrong = [
        f"{key} is {here.get(key)!r} here and {there.get(key)!r} there"
        for key in dict.fromkeys([*here, *there])
        if here.get(key) != there.get(key)
    ]
    if wrong:
        raise SpecError(
            f"The layout and the served policy differ: {'; '.join(wrong)}. Use policy=openpi, "
            "which takes what the server says, or correct the layout."
        )


def _facts(layout: Layout, spec: PolicySpec) -> dict[str, Any]:
    """Everything that both sides must agree on, in comparable words; not how much is executed."""
    sizes = {camera.name: (camera.width, camera.height) for camera in spec.observation.cameras}
    presented = _plain(asdict(spec.observation))
    commands = _plain(asdict(spec.action))
    return {
        **{f"image '{key}'": sizes[picture.camera] for key, picture in layout.images.items()},
        **{f"state '{key}'": list(parts) for key, parts in layout.state.items()},
        "prompt": layout.prompt,
        "nested": layout.nested,
        **{k: v for k, v in presented.items() if k not in (*_IN_LAYOUT, "render")},
        **{f"action.{key}": value for key, value in commands.items() if key != "execute"},
    }


def nothing_declared(*, deterministic: bool) -> PolicySpec:
    """The spec of a policy whose conventions are not known yet."""
    return PolicySpec(
        observation=ObservationSpec(), action=ActionSpec(), deterministic=deterministic
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def differences(first: Mapping[str, Any], other: Mapping[str, Any], ignored: frozenset[str]) -> str:
    """In which keys two servers' metadata differ, with both values; empty where in none."""
    keys = [key for key in dict.fromkeys([*first, *other]) if key not in ignored]
    return "; ".join(
        f"{key} ({_short(first.get(key))} and {_short(other.get(key))})"
        for key in keys
        if digest(first.get(key)) != digest(other.get(key))
    )


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and "policy" in value:  # of a `robogen serve`
        value = {"policy": value.get("policy"), "identity": value.get("identity")}
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}..."


def digest(content: Any) -> str:
    """Hash of anything a message can hold."""
    return hashlib.blake2b(wire.pack(_ordered(content)), digest_size=12).hexdigest()


def _ordered(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _ordered(content[key]) for key in sorted(content, key=str)}
    return [_ordered(item) for item in content] if isinstance(content, list | tuple) else content


def renaming(wanted: Mapping[str, str], cameras: Sequence[str]) -> dict[str, str]:
    """A guess which of a scene's cameras is meant by each key."""

    def on_arm(*names: str) -> bool:
        return any(word in name.lower() for name in names for word in _WRIST)

    found: dict[str, str] = {}
    for key, camera in wanted.items():
        alike = [name for name in cameras if on_arm(name) == on_arm(key, camera)]
        free = [name for name in alike or cameras if name not in found.values()]
        best = [camera] if camera in cameras else free or alike or list(cameras) or ["CAMERA"]
        found[key] = best[0]
    return found
