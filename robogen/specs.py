"""Conventions as data: what a policy sees and commands, and what a scene offers.

A scene and a policy each declare a spec; :func:`match` compares them before step 0. A difference
with a known adapter is adapted and reported, any other raises :class:`~robogen.errors.SpecError`
naming both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.errors import SpecError, nearest

ActionMode = Literal["delta_eef", "absolute_eef", "absolute_joint", "delta_joint", "native"]
RenderProfile = Literal["fast", "nice", "native"]
Orientation = Literal["upright", "flipped", "mirrored", "rotated_180"]
Channels = Literal["rgb", "bgr"]
Layout = Literal["hwc", "chw"]
Pixels = Literal["uint8", "unit"]
Fit = Literal["stretch", "pad"]
Frame = Literal["base", "tool"]
Rotation = Literal[
    "axis_angle", "euler_xyz", "quat_xyzw", "quat_wxyz", "rot6d", "rot6d_interleaved"
]
Gripper = Literal["close_positive", "open_positive"]
GripperRange = Literal["signed", "unit"]
Channel = Literal["camera", "state", "instruction", "dynamics", "action"]
Split = Literal["train", "eval"]
Draw = dict[str, Any]
"""The value(s) a factor took in one episode: JSON-able, logged, enough to apply it again."""

STATE_LAYOUT = (
    "eef_pos",
    "eef_rot6d",
    "gripper_opening",
    "joint_pos",
    "eef_axis_angle",
    "gripper_qpos",
    "native",
    "eef_quat_xyzw",
    "eef_quat_wxyz",
    "eef_euler_xyz",
    "gripper_closed",
)
"""Parts of a proprioceptive state a scene can offer, in the order they are concatenated.

``eef_pos`` (3) [m], robot base frame; ``eef_rot6d`` (6), first two columns of the rotation matrix
one after the other; ``gripper_opening`` (1) [m] between the fingers; ``joint_pos`` (n) [rad];
``eef_axis_angle`` (3) [rad], the same orientation as a rotation vector; ``gripper_qpos`` (k),
finger joints [m or rad]; ``native`` (n), the proprioceptive vector of an adapted environment;
``eef_quat_xyzw`` and ``eef_quat_wxyz`` (4), the same orientation as a quaternion whose w is not
negative, scalar last or first; ``eef_euler_xyz`` (3) [rad], turns about the fixed x, y and z axes;
``gripper_closed`` (1), 0 fully open and 1 closed.
"""


@dataclass(frozen=True, kw_only=True)
class CameraSpec:
    """One camera image a policy wants; how its numbers lie is :class:`ObservationSpec`'s."""

    name: str
    width: int
    height: int
    drawn: tuple[int, int] | None = None
    """Width and height the frame is rendered at before it is cropped and resized; None: as
    wanted."""

    @property
    def rendered(self) -> tuple[int, int]:
        """Width and height that the scene draws."""
        return self.drawn or (self.width, self.height)


@dataclass(frozen=True, kw_only=True)
class ObservationSpec:
    """What reaches a policy at a query."""

    cameras: tuple[CameraSpec, ...] = ()
    state: tuple[str, ...] = ()
    """Names from :data:`STATE_LAYOUT`."""
    instruction: bool = False
    """Whether the policy reads the instruction."""
    history: tuple[int, ...] = (0,)
    """Control-step offsets, e.g. ``(-1, 0)``; the last is always 0. Images then have shape
    (len(history), H, W, 3) and states (len(history), D)."""
    render: RenderProfile = "fast"
    """Profile the policy was trained at; adapted environments are drawn as their scene says."""
    orientation: Orientation | None = None
    """How frames are turned on their way to the policy; None: as the scene's published policies
    expect. ``flipped`` is upside down (rows reversed: what OpenGL hands out and robosuite passes
    on), ``mirrored`` has columns reversed (a robosuite frame turned by 180 degrees, which is what
    LIBERO policies are trained on), ``rotated_180`` has both."""
    crop: float = 1.0
    """Edge of the centred part of a frame that is kept, as a fraction; then resized."""
    fit: Fit = "stretch"
    """How a frame of another shape becomes the wanted one: ``stretch``, or ``pad`` with black on
    both sides, which keeps its proportions."""
    channels: Channels = "rgb"
    layout: Layout = "hwc"
    pixels: Pixels = "uint8"
    """``uint8``: 0..255; ``unit``: float32 in 0..1."""


@dataclass(frozen=True, kw_only=True)
class ActionSpec:
    """How an action vector is read.

    ``delta_eef``: ``[dx, dy, dz, rotation, gripper]`` in [-1, 1]; translation is scaled by
    ``scale_position`` [m], rotation by ``scale_rotation`` [rad] where it is an angle, both added to
    the commanded pose. ``absolute_eef``: position [m], rotation, gripper. ``absolute_joint``:
    (n + 1,) [rad]. ``delta_joint``: (n + 1,) scaled by ``scale_rotation``. The gripper is last.
    ``native``: (n,) exactly what an adapted environment's own action space takes, unscaled.

    The defaults are what scenes read; any other choice of frame, rotation and gripper is turned
    into it, see :mod:`robogen.conventions`.
    """

    mode: ActionMode = "delta_eef"
    dim: int = 7
    scale_position: float = 0.05
    scale_rotation: float = 0.5
    frame: Frame = "base"
    """Axes that a delta of the tool is along: the robot base's, or the tool's own right now."""
    rotation: Rotation = "axis_angle"
    """Of the tool modes. ``axis_angle`` and ``euler_xyz`` (about the fixed axes) take 3 numbers,
    quaternions 4 in the order of their name, ``rot6d`` 6: the first two columns of the matrix, one
    after the other, ``rot6d_interleaved`` the same row by row. Only angles are scaled."""
    gripper: Gripper = "close_positive"
    """What the larger number does."""
    gripper_range: GripperRange = "signed"
    """``signed``: -1 to 1; ``unit``: 0 to 1."""
    control_hz: float = 10.0
    chunk: int = 1
    """Actions one query returns."""
    execute: int = 1
    """Actions of a chunk that are executed before the next query."""


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """Everything a policy declares about itself."""

    observation: ObservationSpec
    action: ActionSpec
    deterministic: bool = True
    """Whether equal observations give bit-equal actions."""
    privileged: bool = False
    """Whether the policy reads simulator state (an oracle, a state-based baseline)."""


@dataclass(frozen=True, kw_only=True)
class SceneSpec:
    """Everything a scene offers to policies."""

    name: str
    cameras: tuple[str, ...]
    state: Mapping[str, int]
    """State parts on offer and their sizes."""
    action_modes: Mapping[ActionMode, int]
    """Action modes on offer and their dimensions, the preferred one first."""
    control_hz: float
    horizon: int
    """Longest episode in control steps."""
    orientation: Orientation = "upright"
    """How frames are turned for policies that do not say, see :class:`ObservationSpec`."""
    render: RenderProfile | None = None
    """How frames are drawn whatever a policy asks for; None: as it asks."""
    slots: int | None = None
    """Most copies a worker should hold; None: as many as asked for."""

    @property
    def action(self) -> ActionSpec:
        """The scene's preferred action mode, at its rate: for policies without one of their own."""
        mode, dim = next(iter(self.action_modes.items()))
        return ActionSpec(mode=mode, dim=dim, control_hz=self.control_hz)


class Observation(NamedTuple):
    """What one query of one episode delivers to a policy."""

    images: dict[str, NDArray[np.uint8]]
    state: NDArray[np.float32]
    instruction: str
    step: int
    """Control step of this query, 0-based."""
    privileged: Mapping[str, Any] | None = None
    """Simulator facts, only for policies that declare ``privileged``."""


def turned(image: NDArray[np.uint8], orientation: Orientation) -> NDArray[np.uint8]:
    """An upright frame (H, W, 3) as a policy with this orientation gets it."""
    rows = -1 if orientation in ("flipped", "rotated_180") else 1
    columns = -1 if orientation in ("mirrored", "rotated_180") else 1
    return image if rows == columns == 1 else np.ascontiguousarray(image[::rows, ::columns])


ROTATION_SIZE: Mapping[Rotation, int] = {
    "axis_angle": 3, "euler_xyz": 3, "quat_xyzw": 4, "quat_wxyz": 4, "rot6d": 6,
    "rot6d_interleaved": 6,
}  # fmt: skip
TOOL_MODES: tuple[ActionMode, ...] = ("delta_eef", "absolute_eef")


def canonical(action: ActionSpec) -> ActionSpec:
    """The same commands as scenes read them: base frame, axis-angle, +1 closes."""
    return replace(
        action,
        dim=7 if action.mode in TOOL_MODES else action.dim,
        frame="base",
        rotation="axis_angle",
        gripper="close_positive",
        gripper_range="signed",
    )


@dataclass(frozen=True)
class Adaptation:
    """One known difference between two specs that the harness bridges, in words."""

    what: str


@dataclass(frozen=True)
class Match:
    """Outcome of comparing specs; ``action`` is what the scene's controller must read."""

    action: ActionSpec
    adaptations: tuple[Adaptation, ...] = field(default=())


def match(policy: PolicySpec, scene: SceneSpec) -> Match:
    """Compare a policy's conventions with a scene's.

    Raises:
        SpecError: Something differs that no adapter bridges; the message names both sides.
    """
    problems: list[str] = []
    todo = "Choose a checkpoint made for this scene, or change the policy's spec."
    adaptations: list[Adaptation] = []
    strange = [c.name for c in policy.observation.cameras if c.name not in scene.cameras]
    for name in strange:
        problems.append(f"camera '{name}' is not in the scene (it has {', '.join(scene.cameras)})")
    if strange and scene.cameras:
        rename = ", ".join(f"{name}: {_stand_in(name, scene.cameras)}" for name in strange)
        todo += (
            " If only the names of the cameras differ, say which is which: policies of other "
            f"codebases take a map from theirs to the scene's, `policy.NAME.cameras={{{rename}}}`."
        )
    for part in policy.observation.state:
        if part not in scene.state:
            problems.append(
                f"state '{part}' is not offered (the scene has {', '.join(scene.state)})"
            )
    action = policy.action
    size = action.dim
    if action.mode in TOOL_MODES:
        size = 4 + ROTATION_SIZE[action.rotation]
    if action.mode not in scene.action_modes:
        problems.append(
            f"action mode '{action.mode}' is not accepted (the scene takes "
            f"{', '.join(scene.action_modes)})"
        )
    elif action.dim != size:
        problems.append(
            f"'{action.mode}' actions with rotation '{action.rotation}' have {size} numbers, the "
            f"policy's have {action.dim}"
        )
    elif canonical(action).dim != scene.action_modes[action.mode]:
        problems.append(
            f"'{action.mode}' actions have {action.dim} numbers, the scene's have "
            f"{scene.action_modes[action.mode]}"
        )
    if action.frame == "tool" and action.mode != "delta_eef":
        problems.append(f"frame 'tool' has a meaning for 'delta_eef' only, not '{action.mode}'")
    if not 0.0 < policy.observation.crop <= 1.0:
        problems.append(f"crop {policy.observation.crop:g} must lie in 0..1, above 0")
    if not 1 <= action.execute <= action.chunk:
        problems.append(f"executes {action.execute} of {action.chunk} actions per chunk")
    if sorted(policy.observation.history)[-1:] != [0] or len(
        set(policy.observation.history)
    ) != len(policy.observation.history):
        problems.append(
            f"history {policy.observation.history} must be distinct offsets ending in 0"
        )
    if abs(action.control_hz - scene.control_hz) > 1e-9:
        problems.append(
            f"control rate {action.control_hz:g} Hz differs from the scene's "
            f"{scene.control_hz:g} Hz"
        )
    wanted = policy.observation.orientation
    if wanted is not None and wanted != scene.orientation and policy.observation.cameras:
        adaptations.append(
            Adaptation(
                f"frames: the policy wants them {wanted}, the scene's policies usually "
                f"{scene.orientation}"
            )
        )
    if policy.observation.cameras and scene.render not in (None, policy.observation.render):
        adaptations.append(
            Adaptation(
                f"frames: the scene is drawn '{scene.render}', the policy's spec says "
                f"'{policy.observation.render}'"
            )
        )
    adaptations += _action_adaptations(action)
    if problems:
        raise SpecError(
            f"The policy does not fit scene '{scene.name}': {'; '.join(problems)}. {todo}"
        )
    return Match(action=canonical(action), adaptations=tuple(adaptations))


def _stand_in(camera: str, offered: tuple[str, ...]) -> str:
    return nearest(camera, offered) or offered[0]


def _action_adaptations(action: ActionSpec) -> list[Adaptation]:
    """What is turned on the way from a policy's commands to the scene's."""
    found: list[Adaptation] = []
    if action.frame == "tool":
        found.append(Adaptation("actions: the policy moves along the tool's axes, turned to base"))
    if action.mode in TOOL_MODES and action.rotation != "axis_angle":
        found.append(Adaptation(f"actions: rotations come as {action.rotation}, read as such"))
    if action.gripper == "open_positive":
        found.append(Adaptation("gripper sign: the policy opens with the larger number"))
    if action.gripper_range == "unit":
        found.append(Adaptation("gripper range: the policy's is 0 to 1"))
    return found


@dataclass(kw_only=True)
class InitialState:
    """Where an episode starts, before it is written into the simulator; data factors edit it.

    Placement is drawn once per episode from uniforms that no factor sees, so the same episode
    starts from the same state under every condition that does not move objects.
    """

    robot_qpos: NDArray[np.float64]
    """Arm joint positions (n,) [rad]."""
    uniforms: Mapping[str, tuple[float, float, float]]
    """Accepted draws in [0, 1] per placed object: x, y, yaw."""
    widen: float = 0.0
    """0: objects lie in their nominal regions; 1: in their wide ones."""
    pool: Split = "eval"
    """Which half of the wide region's checkerboard ``widen`` moves objects into."""


@dataclass(frozen=True, kw_only=True)
class Circle:
    """A disc on the table that an object covers: centre [m, m], radius [m], world frame."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True, kw_only=True)
class SceneFacts:
    """What a factor may know of an episode before it draws; the same under every condition."""

    scene: str
    workspace: tuple[float, float, float, float]
    """Table area for decorations: x low, x high, y low, y high [m]."""
    occupied: tuple[Circle, ...]
    """Discs covered by objects at any severity of the spatial factors, and the arm's base."""
    robot_qpos: tuple[float, ...]
    """Nominal arm configuration [rad]."""
    robot_limits: tuple[tuple[float, float], ...]
    """Joint limits [rad]."""
    instruction: str
    """The nominal instruction of this episode."""
    paraphrases: Mapping[Split, tuple[str, ...]]
    """Other wordings of it, disjoint between splits."""
    control_hz: float
    can_widen: bool = False
    """Whether any object has a wide region."""
    can_recompile: bool = True
    """Whether factors of the spec phase can act."""
