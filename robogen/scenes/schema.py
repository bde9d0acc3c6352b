"""The scene file: every key a scene YAML may have, checked on load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Range = tuple[float, float]
Role = Literal["manipulated", "receiver", "fixture"]

PREDICATES = (
    "on",
    "inside",
    "near",
    "lifted",
    "upright",
    "opened",
    "pressed",
    "touching",
    "released",
)
SKILLS = ("grasp", "place_in", "pull", "push_to")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Region(_Model):
    """Where an object may start: x and y [m] in the world frame, yaw [rad]."""

    x: Range
    y: Range
    yaw: Range = (0.0, 0.0)

    @model_validator(mode="after")
    def _ordered(self) -> Region:
        for name in ("x", "y", "yaw"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must be [low, high], got [{low}, {high}]")
        return self


class ObjectConfig(_Model):
    """One object: its MJCF, what it is to the task, and where it starts."""

    model: str
    """MJCF file with exactly one root body; relative to the scene file or to the shipped scenes."""
    role: Role
    mount: Literal["free", "static"]
    """``free``: on a free joint; ``static``: fixed in the world, placed anew each episode."""
    region: Region
    wide: Region | None = None
    """Region of ``object_position`` at severity 1; the nominal one when absent."""
    footprint: Annotated[float, Field(gt=0)]
    """Radius [m] of the disc it covers on the table, at nominal size."""


class PatternConfig(_Model):
    """Nominal pixels of a texture."""

    pattern: str
    seed: int = 0
    rgb: tuple[float, float, float] | None = None
    """Base colour in [0, 1]; the pattern then consists of its shades."""


class ArenaConfig(_Model):
    """The room: its MJCF and the roles of its parts."""

    model: str
    table: tuple[str, ...] = ()
    floor: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    lights: tuple[str, ...] = ()
    textures: dict[str, PatternConfig] = {}
    workspace: tuple[float, float, float, float]
    """Table area for decorations: x low, x high, y low, y high [m]."""


class GripperConfig(_Model):
    """A parallel gripper driven by one position actuator."""

    actuator: str
    joints: tuple[str, ...]
    open: float
    """Actuator target when fully open [m]."""
    closed: float
    fingers: tuple[str, ...]
    """Bodies whose contacts count as the gripper's."""


class RobotConfig(_Model):
    """A robot arm: its MJCF and the names in it."""

    model: str
    joints: tuple[str, ...]
    actuators: tuple[str, ...]
    tcp: str
    """Site at the tool centre point; its z axis points out of the gripper, y along the opening."""
    home: tuple[float, ...]
    gripper: GripperConfig
    root: str
    """Root body."""

    @model_validator(mode="after")
    def _lengths(self) -> RobotConfig:
        if not len(self.joints) == len(self.actuators) == len(self.home):
            raise ValueError(
                f"joints ({len(self.joints)}), actuators ({len(self.actuators)}) and home "
                f"({len(self.home)}) must have equal length"
            )
        return self


class RobotUse(_Model):
    """Which robot stands in the scene and how it starts."""

    name: str = "panda"
    source: Literal["own", "menagerie"] = "own"
    home: tuple[float, ...] | None = None


class Choice(_Model):
    """One thing the instruction may ask for."""

    target: str
    """Object name behind the word ``target`` in the task."""
    words: str
    """How the instruction calls it."""


class SuccessConfig(_Model):
    """Success: every predicate, held without interruption."""

    all: tuple[dict[str, dict[str, Any]], ...]
    hold_s: Annotated[float, Field(ge=0)] = 0.0


class Stage(_Model):
    """One progress stage; a later stage counts the earlier ones as passed."""

    name: str
    all: tuple[dict[str, dict[str, Any]], ...]


class TaskConfig(_Model):
    """What is asked, when it is done, how far along it is, and how an oracle does it."""

    instruction: str
    """Template; ``{target}`` is the choice's words."""
    choices: tuple[Choice, ...]
    paraphrases: dict[Literal["train", "eval"], tuple[str, ...]] = {}
    success: SuccessConfig
    progress: tuple[Stage, ...]
    oracle: tuple[dict[str, dict[str, Any]], ...]
    points: tuple[str, ...]
    """Names whose positions relative to the gripper are logged for auxiliary losses."""
    intended: tuple[str, ...]
    """Objects the robot is meant to touch; contacts with others count as unintended."""


class CameraConfig(_Model):
    """What a camera is to the factors."""

    kind: Literal["third_person", "wrist", "human"]
    """``human`` cameras are for people and videos, never offered to policies."""


class SceneConfig(_Model):
    """A whole scene file."""

    name: str
    description: str
    arena: ArenaConfig
    robot: RobotUse = RobotUse()
    objects: dict[str, ObjectConfig]
    cameras: dict[str, CameraConfig]
    task: TaskConfig
    control_hz: Annotated[float, Field(gt=0)] = 10.0
    horizon_s: Annotated[float, Field(gt=0)]
    settle_s: Annotated[float, Field(ge=0)] = 0.2
    largest_size: Annotated[float, Field(ge=1)] = 1.3
    """Footprints are enlarged by this for placement, so that no size factor moves an object."""

    @property
    def horizon(self) -> int:
        """Longest episode in control steps."""
        return round(self.horizon_s * self.control_hz)

    @model_validator(mode="after")
    def _names(self) -> SceneConfig:
        for choice in self.task.choices:
            if choice.target not in self.objects:
                raise ValueError(
                    f"task.choices names '{choice.target}', objects are {', '.join(self.objects)}"
                )
        for expression in (*self.task.success.all, *(p for s in self.task.progress for p in s.all)):
            for name in expression:
                if name not in PREDICATES:
                    raise ValueError(f"unknown predicate '{name}' (known: {', '.join(PREDICATES)})")
        for skill in self.task.oracle:
            for name in skill:
                if name not in SKILLS:
                    raise ValueError(f"unknown skill '{name}' (known: {', '.join(SKILLS)})")
        return self
