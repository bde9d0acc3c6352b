"""Laws of application on a small compiled world."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from small_world import FACTS, MJCF, MODEL_NAMES, ROLES, make_world, model_bytes, spec

from robogen.errors import FactorError
from robogen.mj.edit import SET_CONST_DERIVED
from robogen.mj.roles import Roles
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import load_factor
from robogen.seeding import EpisodeSeed

VISUAL = tuple(name for name in MODEL_NAMES if load_factor(name).kind == "visual")
DYNAMICS = tuple(name for name in MODEL_NAMES if load_factor(name).channel == "dynamics")


def seed(episode: int = 0) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=0, scene="small", episode=episode)


def apply(world: World, *names: str, severity: float = 1.0, episode: int = 0) -> Perturbation:
    perturbation = Perturbation([(load_factor(name), severity) for name in names])
    perturbation.edit_model(world.edit, perturbation.sample(seed(episode), FACTS))
    world.forward()
    return perturbation


def frame(world: World, camera: str = "front") -> np.ndarray:
    world.forward()
    return world.render(camera, width=64, height=64, profile="fast")


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_only_declared_and_derived_fields_change(world: World, name: str):
    factor = load_factor(name)
    for episode in range(3):
        perturbation = apply(world, name, episode=episode)
        changed = world.edit.changed()
        assert changed
        assert changed <= set(factor.fields) | set(factor.derived)
        evidence = perturbation.edit_evidence(world.edit)[name]
        assert evidence
        assert set(evidence) <= set(factor.fields)
        world.edit.restore()


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_restore_brings_back_every_byte_and_the_frame(world: World, name: str):
    before, picture = model_bytes(world), frame(world)
    apply(world, name)
    changed_picture = frame(world)
    assert model_bytes(world) != before
    if name in VISUAL:
        assert (changed_picture != picture).any()
    world.edit.restore()
    assert model_bytes(world) == before
    assert world.edit.changed() == set()
    np.testing.assert_array_equal(frame(world), picture)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_severity_zero_changes_nothing(world: World, name: str):
    before = model_bytes(world)
    apply(world, name, severity=0.0)
    assert model_bytes(world) == before
    assert world.edit.changed() == set()


@pytest.mark.parametrize("name", VISUAL)
def test_a_visual_factor_leaves_physics_bit_identical(world: World, name: str):
    def tape() -> bytes:
        world.reset()
        states = []
        for step in range(40):
            world.data.ctrl[:] = np.sin(step / 5)
            world.step(5)
            states.append(world.get_state().tobytes())
        return b"".join(states)

    nominal = tape()
    apply(world, name)
    assert tape() == nominal


@pytest.mark.parametrize("name", VISUAL)
def test_more_severity_changes_the_picture_more(world: World, name: str):
    picture = frame(world).astype(int)
    change = []
    for severity in (0.25, 1.0):
        apply(world, name, severity=severity)
        change.append(np.abs(frame(world).astype(int) - picture).mean())
        world.edit.restore()
    assert 0 < change[0] < change[1]


def test_light_factors_compose_in_any_order(world: World):
    apply(world, "light_intensity", "light_color")
    one = {field: world.edit.read(field) for field in ("light_diffuse", "headlight_ambient")}
    draws = Perturbation(
        [(load_factor("light_intensity"), 1.0), (load_factor("light_color"), 1.0)]
    ).sample(seed(), FACTS)
    for field, value in one.items():
        expected = world.edit.nominal_values(field) * 2.0 ** draws["light_intensity"]["stops"]
        expected = expected * draws["light_color"]["gain_rgb"]
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    world.edit.restore()
    apply(world, "light_color", "light_intensity")
    for field, value in one.items():
        np.testing.assert_array_equal(world.edit.read(field), value)


@pytest.mark.parametrize(
    "names", [("table_texture", "table_color"), ("manipulated_texture", "manipulated_color")]
)
def test_texture_and_colour_compose(world: World, names: tuple[str, str]):
    pictures = []
    for chosen in ((), names[:1], names[1:], names):
        apply(world, *chosen)
        pictures.append(frame(world).tobytes())
        world.edit.restore()
    assert len(set(pictures)) == 4


def test_two_factors_that_replace_one_texture_are_refused_by_name(world: World):
    first = load_factor("table_texture")
    second = type(first)(
        name="tablecloth", role="table", max_blend=1.0, families=["stripes"], zoom=1
    )
    both = Perturbation([(first, 1.0), (second, 1.0)])
    with pytest.raises(FactorError, match=r"'tablecloth' and 'table_texture'"):
        both.edit_model(world.edit, both.sample(seed(), FACTS))
    assert world.edit.changed() == set()


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_factor_with_nothing_to_change_says_so_and_raises(name: str):
    bare = World.compiled(
        mujoco.MjSpec.from_string(
            '<mujoco><visual><headlight active="0"/></visual><worldbody>'
            '<geom type="box" size="1 1 1"/></worldbody></mujoco>'
        ),
        Roles(),
        {},
    )
    factor = load_factor(name)
    reason = factor.applies_to(bare, FACTS)
    assert reason
    assert not reason.endswith(".")
    perturbation = Perturbation([(factor, 1.0)])
    assert perturbation.not_applicable(bare, FACTS) == {name: reason}
    with pytest.raises(FactorError, match=name):
        perturbation.edit_model(bare.edit, perturbation.sample(seed(), FACTS))


def test_a_factor_that_writes_the_same_value_again_raises(world: World):
    lazy = type(load_factor("light_intensity"))(
        name="light_intensity", dimmest_stops=0.0, brightest_stops=0.0
    )
    perturbation = Perturbation([(lazy, 1.0)])
    with pytest.raises(FactorError, match="changed nothing"):
        perturbation.edit_model(world.edit, perturbation.sample(seed(), FACTS))


def test_an_undeclared_write_is_refused(world: World):
    world.edit.begin("sly", ("mat_rgba",))
    with pytest.raises(FactorError, match="does not declare"):
        world.edit.write("cam_fovy", 0, 10.0, "replace")


def test_every_factor_applies_to_a_complete_scene(world: World):
    from small_world import NAMES

    everything = Perturbation([(load_factor(name), 1.0) for name in NAMES])
    assert everything.not_applicable(world, FACTS) == {}


def test_mass_refreshes_what_follows_from_it(world: World):
    before = world.edit.read("body_subtreemass", [0])
    apply(world, "mass")
    assert (world.edit.read("body_subtreemass", [0]) != before).all()
    assert world.edit.changed() <= {"body_mass", "body_inertia", *SET_CONST_DERIVED}


def test_colour_leaves_grey_trim_alone_and_turns_the_rest(world: World):
    apply(world, "manipulated_color")
    materials = {n: world.model.material(n).id for n in ("cube", "trim")}
    trim = world.edit.read("mat_rgba", [materials["trim"]])
    np.testing.assert_array_equal(trim, world.edit.nominal_values("mat_rgba", [materials["trim"]]))
    colour = world.edit.read("mat_rgba", [materials["cube"]])[0, :3]
    nominal = world.edit.nominal_values("mat_rgba", [materials["cube"]])[0, :3]
    assert np.abs(colour - nominal).max() > 0.3


def test_texture_blend_is_what_is_seen(world: World):
    """At full blend the pattern shows in its own colours, whatever the material's was."""
    from robogen.mj.patterns import pattern

    perturbation = apply(world, "table_texture")
    drawn = perturbation.sample(seed(), FACTS)["table_texture"]
    texture = world.model.texture("table").id
    np.testing.assert_array_equal(
        world.edit.texture(texture), pattern(drawn["pattern"], drawn["seed"], 64)
    )
    material = world.model.material("table").id
    np.testing.assert_allclose(world.edit.read("mat_rgba", [material])[0], 1.0, rtol=1e-6)


def test_cube_faces_are_painted_alike(world: World):
    apply(world, "manipulated_texture")
    pixels = world.edit.texture(world.model.texture("cube").id)
    faces = pixels.reshape(6, 32, 32, 3)
    assert (faces == faces[0]).all()


# -- specification ---------------------------------------------------------------------------------


def recompiled(name: str, severity: float = 1.0, episode: int = 0) -> tuple[World, SpecEdit]:
    perturbation = Perturbation([(load_factor(name), severity)])
    assert perturbation.needs_recompile
    edit = SpecEdit(spec(), ROLES)
    perturbation.edit_spec(edit, perturbation.sample(seed(episode), FACTS))
    world = make_world(edit.spec)
    assert perturbation.edit_evidence(world.edit, edit)[name]
    return world, edit


def test_distractors_leave_physics_bit_identical_and_are_seen(world: World):
    def tape(of: World) -> bytes:
        of.reset()
        of.step(200)
        return of.data.qpos.tobytes() + of.data.qvel.tobytes()

    decorated, edit = recompiled("distractors")
    assert edit.decorations
    assert tape(decorated) == tape(world)
    decorated.reset()
    world.reset()
    assert (frame(decorated) != frame(world)).any()
    decorated.close()


def test_size_scales_geometry_and_mass_together(world: World):
    scaled, edit = recompiled("object_size")
    factor = edit.sizes["cube"]
    assert factor != 1
    np.testing.assert_allclose(
        scaled.model.geom("cube").size, factor * world.model.geom("cube").size
    )
    np.testing.assert_allclose(scaled.model.body("cube").mass, factor**3 * 0.1)
    np.testing.assert_allclose(
        scaled.model.body("cube").inertia, factor**5 * world.model.body("cube").inertia, rtol=1e-6
    )
    np.testing.assert_allclose(scaled.model.site("base").pos[2], -0.025 * factor)


def test_size_leaves_articulated_and_mesh_objects_alone(world: World):
    factor = type(load_factor("object_size"))(
        name="arm_size", role="robot", smallest_ratio=0.9, largest_ratio=1.1
    )
    assert "articulated" in str(factor.applies_to(world, FACTS))
    meshed = mujoco.MjSpec.from_string(MJCF)
    mesh = meshed.add_mesh(name="cone")
    mesh.make_cone(nedge=8, radius=0.1)
    mesh.scale = [0.02, 0.02, 0.02]
    meshed.body("tray").add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="cone")
    other = make_world(meshed)
    factor = type(factor)(name="tray_size", role="receiver", smallest_ratio=0.9, largest_ratio=1.1)
    assert "meshes" in str(factor.applies_to(other, FACTS))
    edit = SpecEdit(meshed, ROLES, "tray_size")
    with pytest.raises(FactorError, match="mesh geoms"):
        edit.scale("receiver", 1.1)


def test_a_spec_factor_without_its_role_raises():
    edit = SpecEdit(spec(), Roles(), "object_size")
    with pytest.raises(FactorError, match="no 'manipulated' object"):
        edit.scale("manipulated", 1.1)


@pytest.mark.parametrize("name", DYNAMICS)
def test_physical_factors_change_the_motion(world: World, name: str):
    def slide() -> np.ndarray:
        world.reset()
        world.data.qvel[world.model.joint(1).dofadr[0]] = 1.0
        world.data.xfrc_applied[world.model.body("cube").id, 0] = 0.05
        world.step(100)
        world.data.xfrc_applied[:] = 0
        return world.data.qpos.copy()

    nominal = slide()
    apply(world, name)
    assert np.abs(slide() - nominal).max() > 1e-5
