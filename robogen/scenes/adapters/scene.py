"""A scene around somebody else's environment."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from robogen.conventions import derivable, derived
from robogen.errors import ConfigError, SceneError, unknown
from robogen.mj import borrowed
from robogen.mj.roles import CameraKind
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.scenes.adapters.base import Adapter, Start
from robogen.scenes.adapters.family import FamilyConfig, installed, reworded
from robogen.scenes.adapters.loading import roles_of
from robogen.scenes.base import StepResult
from robogen.scenes.behaviour import MotionMeter
from robogen.seeding import EpisodeSeed
from robogen.specs import (
    ActionSpec,
    CameraSpec,
    Circle,
    InitialState,
    Orientation,
    RenderProfile,
    SceneFacts,
    SceneSpec,
    Split,
    turned,
)

_BOARD = 4
"""Squares along an edge of the checkerboard that tells the splits' object offsets apart."""


class AdaptedScene:
    """Somebody else's environment under robogen's factors.

    An episode's start is the environment's own reset, run once per episode on the nominal model and
    kept; whatever a factor then changes, the episode begins from that very state.

    Args:
        name: ``family/task``.
        adapter: The environment.
        config: What its family file says.
    """

    def __init__(self, name: str, adapter: Adapter, config: FamilyConfig) -> None:
        self.config = config
        self._adapter = adapter
        self._roles = roles_of(name, adapter, config)
        people = [c for c in config.people if c in borrowed.inventory(adapter.model, "camera")]
        self._nominal = World(adapter.model, adapter.data, self._roles, config.groups)
        self.world = self._nominal
        self.spec_edit: SpecEdit | None = None
        """This episode's edits of the specification, when it was recompiled."""
        self.placement: dict[str, list[float]] = {}
        """Where the task's objects stood at the last reset: x, y [m], yaw [rad]."""
        self.human_cameras = tuple(people)
        """Cameras for people and videos, never offered to policies."""
        self._joints = borrowed.joints_matching(adapter.model, config.arm)
        self._start = Start(0, 0)
        adapter.reset(self._start)
        self._begun()
        self._model_hash = borrowed.model_hash(adapter.model)
        self.spec = SceneSpec(
            name=name,
            cameras=tuple(config.cameras),
            state=derivable({part: values.size for part, values in adapter.state().items()}),
            action_modes=adapter.action_modes,
            control_hz=config.control_hz,
            horizon=config.horizon,
            orientation=config.orientation,
            render=config.render,
            slots=config.slots,
        )

    # -- episode set-up --------------------------------------------------------------------------

    def _begun(self) -> None:
        """The environment has reset itself: this is the episode's nominal start."""
        if self._adapter.model is not self._nominal.model:
            self._nominal.close()
            self._nominal = World(
                self._adapter.model, self._adapter.data, self._roles, self.config.groups
            )
            self.world = self._nominal
        self._nominal.edit.rebase()
        self._nominal.written = borrowed.fixed_places(self._nominal.model)
        self._state = borrowed.keep_state(self._nominal)
        self._stepped = False

    def prepare(self, seed: EpisodeSeed) -> tuple[InitialState, SceneFacts]:
        """Let the environment reset itself, and see where this episode starts and what it asks."""
        self.rebuild(None)
        self.world.edit.restore()
        self._start = Start(seed.integer("environment"), seed.episode)
        self._adapter.reset(self._start)
        self._begun()
        top = borrowed.table_top(self.world)
        instruction = self._instruction()
        limits = self.world.joint_limits(self._joints) if self._joints else np.zeros((0, 2))
        joints = self._arm()
        movable = borrowed.free_roots(self.world, "manipulated") if self.config.wide_m else ()
        stream = seed.stream("placement")
        uniforms: dict[str, tuple[float, float, float]] = {}
        for name in movable:
            x, y, yaw = stream.uniform(size=3).tolist()
            uniforms[name] = (x, y, yaw)
        facts = SceneFacts(
            scene=self.spec.name,
            workspace=self._workspace(top),
            occupied=(*self._covered(top), *self._reachable(uniforms)),
            robot_qpos=tuple(joints.tolist()),
            robot_limits=tuple((float(low), float(high)) for low, high in limits),
            instruction=instruction,
            paraphrases=reworded(instruction, self.config.rewordings),
            control_hz=self.config.control_hz,
            can_widen=bool(movable),
            can_recompile=self._adapter.specification() is not None,
        )
        return InitialState(robot_qpos=joints, uniforms=uniforms), facts

    def _arm(self) -> NDArray[np.float64]:
        addresses = self.world.qpos_addresses(self._joints)
        return self.world.joint_positions(addresses)

    def _instruction(self) -> str:
        task = self.spec.name.partition("/")[2]
        return self.config.instructions.get(task, self._adapter.instruction)

    def _workspace(self, top: borrowed.Surface | None) -> tuple[float, float, float, float]:
        if top is None:
            return (0.0, 0.0, 0.0, 0.0)
        table = (top.x_low, top.x_high, top.y_low, top.y_high)
        wanted = self.config.workspace or table
        return (
            max(table[0], wanted[0]),
            min(table[1], wanted[1]),
            max(table[2], wanted[2]),
            min(table[3], wanted[3]),
        )

    def _covered(self, top: borrowed.Surface | None) -> list[Circle]:
        discs = borrowed.covered(self.world, top.height) if top is not None else []
        return [Circle(x=disc.x, y=disc.y, radius=disc.radius) for disc in discs]

    def _reachable(self, uniforms: Mapping[str, tuple[float, float, float]]) -> list[Circle]:
        """Discs that movable objects cover once ``object_position`` has moved them."""
        circles = []
        for name, drawn in uniforms.items():
            x, y, _ = self.world.body_position(name)
            radius = float(np.abs(np.array(self.world.extent(name))[:, :2]).max()) * math.sqrt(2)
            pools: tuple[Split, Split] = ("train", "eval")
            for pool, widen in itertools.product(pools, (0.5, 1.0)):
                dx, dy = widen * self._offset(drawn, pool)
                circles.append(Circle(x=float(x + dx), y=float(y + dy), radius=radius))
        return circles

    def rebuild(self, edit: Callable[[SpecEdit], None] | None) -> None:
        """Recompile for one episode with an edited specification; None goes back to nominal."""
        if self.world is not self._nominal:
            self._adapter.install(self._nominal.model, self._nominal.data)
            self.world.close()
            self.world = self._nominal
        self.spec_edit = None
        if edit is None:
            return
        spec = self._adapter.specification()
        if spec is None:
            raise SceneError(
                f"Scene '{self.spec.name}' cannot be recompiled. Leave out factors of the spec "
                "phase."
            )
        top = borrowed.table_top(self._nominal)
        change = SpecEdit(
            spec,
            self._roles,
            ground=0.0 if top is None else top.height,
            group=min(self.config.groups or (0,)),
        )
        plain = spec.compile()
        edit(change)
        try:
            world = World.compiled(
                spec,
                self._roles,
                groups=self.config.groups,
                adjust=lambda model: borrowed.carry_over(self._nominal.model, plain, model),
            )
        except ValueError as error:
            raise SceneError(
                f"Scene '{self.spec.name}' cannot be recompiled: its specification gives another "
                f"model than the environment's ({error}). Leave out factors of the spec phase."
            ) from error
        world.written = self._nominal.written
        self._adapter.install(world.model, world.data)
        self.world, self.spec_edit = world, change

    def reset(self, initial: InitialState) -> None:
        """Put this episode's start into the current world, as the initial state moves it."""
        if self._stepped:
            self._adapter.reset(self._start)
            self._stepped = False
        world = self.world
        borrowed.put_state(world, self._state)
        self._stand_scaled_things_on_the_ground()
        if self._joints and not np.array_equal(initial.robot_qpos, self._arm()):
            world.set_joint_positions(world.qpos_addresses(self._joints), initial.robot_qpos)
            world.forward()
            self._adapter.arm_moved()
            self._stepped = True  # what it was told, only its own reset takes back
        if initial.widen > 0:
            for name, uniforms in initial.uniforms.items():
                self._shift(name, initial.widen * self._offset(uniforms, initial.pool))
            world.forward()
        self.placement = {}
        for role in ("manipulated", "receiver"):
            for name in self._roles.bodies.get(role, ()):
                pose = world.body_pose(name)
                yaw = math.atan2(pose.rotation[1, 0], pose.rotation[0, 0])
                self.placement[name] = [round(float(v), 6) for v in (*pose.position[:2], yaw)]
        self._meter = MotionMeter(
            world=world,
            position=lambda: self._adapter.tool.position,
            robot=[world.body_names[b] for b in world.edit.bodies("robot")],
            control_hz=self.config.control_hz,
        )
        self._progress = 0.0

    def _offset(self, uniforms: tuple[float, float, float], pool: Split) -> NDArray[np.float64]:
        """Shift (2,) [m] at full width: on the squares of a checkerboard that are the pool's."""
        cells = np.floor(np.array(uniforms[:2]) * _BOARD)
        if int(cells.sum()) % 2 != (0 if pool == "train" else 1):
            cells[0] += 1.0 if cells[0] < _BOARD - 1 else -1.0
        within = np.array(uniforms[:2]) * _BOARD % 1.0
        return np.asarray(self.config.wide_m * (2.0 * (cells + within) / _BOARD - 1.0))

    def _shift(self, name: str, offset: NDArray[np.float64], height: float = 0.0) -> None:
        pose = self.world.body_position(name)
        self.world.move_free_body(name, pose + np.array([*offset, height]))

    def _stand_scaled_things_on_the_ground(self) -> None:
        if self.spec_edit is None:
            return
        for name in borrowed.free_roots(self.world, "manipulated"):
            if name in self.spec_edit.sizes:
                low, nominal = self.world.extent(name)[0][2], self._nominal.extent(name)[0][2]
                self._shift(name, np.zeros(2), float(nominal - low))
        self.world.forward()

    # -- what the protocol asks ------------------------------------------------------------------

    @property
    def target(self) -> str:
        """First of the task's manipulated objects."""
        return next(iter(self._roles.bodies.get("manipulated", ())), "")

    def wordings(self, split: Split) -> tuple[str, ...]:
        """The nominal instruction and a split's paraphrases of it."""
        text = self._instruction()
        return (text, *reworded(text, self.config.rewordings).get(split, ()))

    @property
    def camera_kinds(self) -> dict[str, CameraKind]:
        """``third_person`` or ``wrist``, by name of each camera offered to policies."""
        return dict(self.config.cameras)

    @property
    def point_names(self) -> tuple[str, ...]:
        """The task's objects."""
        bodies = self._roles.bodies
        return tuple(dict.fromkeys((*bodies.get("manipulated", ()), *bodies.get("receiver", ()))))

    def points(self) -> NDArray[np.float32]:
        """Positions (K, 3) [m] of the task's objects relative to the tool, world axes."""
        tool = self._adapter.tool.position
        rows = [self.world.body_position(name) - tool for name in self.point_names]
        return np.array(rows, np.float32).reshape(-1, 3)

    def render(
        self, camera: str, *, width: int, height: int, profile: RenderProfile
    ) -> NDArray[np.uint8]:
        """One upright RGB frame (height, width, 3) uint8, drawn as the scene says.

        A policy's profile is not looked at: what it was trained on is the environment's own look.
        """
        del profile
        known = (*self.config.cameras, *self.human_cameras)
        if camera not in known:
            raise ConfigError(unknown("camera", camera, known))
        return self.world.render(camera, width=width, height=height, profile=self.config.render)

    def images(
        self,
        cameras: Iterable[CameraSpec],
        profile: RenderProfile,
        orientation: Orientation | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Frames by camera name, turned as asked or as the codebase's policies expect."""
        return {
            camera.name: turned(
                self.render(camera.name, width=camera.width, height=camera.height, profile=profile),
                orientation or self.spec.orientation,
            )
            for camera in cameras
        }

    def proprioception(self, parts: Sequence[str]) -> NDArray[np.float32]:
        """Concatenated state parts (D,), see :data:`robogen.specs.STATE_LAYOUT`."""
        if not parts:
            return np.zeros(0, np.float32)
        offered = self._adapter.state()
        for part in parts:
            if part not in self.spec.state:
                raise ConfigError(unknown("state part", part, self.spec.state))
        return np.concatenate([derived(part, offered) for part in parts]).astype(np.float32)

    def expert_action(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]] = ()
    ) -> NDArray[np.float64]:
        """What the codebase's expert does now (dim,).

        Raises:
            SceneError: There is none for this task.
        """
        action = self._adapter.expert(spec, pending)
        if action is None:
            raise SceneError(
                f"Scene '{self.spec.name}' has no scripted expert. Choose a policy that was "
                "trained for it."
            )
        return action

    @property
    def has_expert(self) -> bool:
        """Whether :meth:`expert_action` answers."""
        return self._adapter.expert(self.spec.action, ()) is not None

    def rest_action(self, spec: ActionSpec) -> NDArray[np.float64]:
        """The action that means "stay" right now."""
        return self._adapter.rest(spec)

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> StepResult:
        """Execute one action for one control step."""
        self._stepped = True
        self._adapter.step(action, spec)
        if not self.world.is_finite():
            return StepResult(False, self._progress, False)
        self._meter.update()
        self._progress = max(self._progress, self._adapter.progress())
        return StepResult(self._adapter.success(), self._progress, True)

    def behaviour(self) -> dict[str, float]:
        """This episode's behaviour measures so far."""
        return self._meter.summary()

    def notes(self) -> tuple[str, ...]:
        """What a reader of results should know of this environment; tried out, so it takes time."""
        hashes = []
        for start in (Start(11, 0), Start(12, 1), Start(11, 0)):
            self._adapter.reset(start)
            self._begun()
            digest = hashlib.blake2b(self._state.whole.tobytes(), digest_size=12)
            digest.update(borrowed.model_hash(self._nominal.model).encode())
            hashes.append(digest.hexdigest())
        if hashes[0] == hashes[2]:
            return ()
        return (
            "its own reset does not repeat: the same seed and initial state led to different "
            "starts, so conditions are not matched episode by episode",
        )

    def identity(self) -> dict[str, str]:
        """Hash of family file and model, versions of the codebase, and how it is drawn."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(self.config.model_dump_json(exclude={"slots", "install"}).encode())
        digest.update(self._model_hash.encode())
        return {
            "hash": digest.hexdigest(),
            "render": self.config.render,
            **installed(self.config.packages),
        }

    def close(self) -> None:
        """Free what the scene's worlds hold on the device, and the environment."""
        self.rebuild(None)
        self._nominal.close()
        self._adapter.close()
