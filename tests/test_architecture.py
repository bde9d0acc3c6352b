"""Imports point down, and simulator fields stay in one folder: read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import robogen

PACKAGE = Path(robogen.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = (
    ("cli", "__main__"),
    ("api", "envs", "gym_env", "lerobot_env"),
    (
        "study",
        "collect",
        "train",
        "curve",
        "probe",
        "replay",
        "recording",
        "preview",
        "doctor",
        "init_scene",
        "serve",
        "audit",
    ),
    ("rollout",),
    ("policies", "perturbations", "scenes"),
    ("mj",),
    ("report", "correlate", "plan", "compare", "trials", "align"),
    ("records", "datasets"),
    ("stats",),
    ("config", "conventions", "paths", "specs", "seeding", "errors"),
)
"""From the top; a part imports parts of lower rows only."""
LEVEL = {part: level for level, row in enumerate(LAYERS) for part in row}
TOGETHER = (0, 1, 2)
"""Rows whose parts may import each other, in one direction; the others hold strangers or a base."""
STRANGERS = ({"policies", "perturbations", "scenes"}, {"records", "datasets"})
"""Parts of one row that never import each other, not even in one direction."""
WITHOUT = {
    "report": ("mujoco", "torch", "gymnasium", "mink"),
    "records": ("mujoco", "torch", "gymnasium", "mink"),
    "stats": ("mujoco", "torch", "gymnasium", "mink"),
    "datasets": ("mujoco", "torch", "gymnasium", "mink"),
    "errors": ("mujoco", "torch", "gymnasium", "mink", "numpy"),
    "conventions": ("mujoco", "torch", "gymnasium", "mink"),
    "specs": ("mujoco", "torch", "gymnasium", "mink"),
    "seeding": ("mujoco", "torch", "gymnasium", "mink"),
    "perturbations": ("mujoco", "torch", "gymnasium", "mink"),
    "rollout": ("mujoco", "torch", "gymnasium", "mink"),
    "policies": ("mujoco", "gymnasium", "mink"),
    "scenes": ("torch", "gymnasium", "mink"),
}
"""Libraries a part has no business with."""


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {name_of(file): file for file in FILES}


def part_of(module: str) -> str:
    """``robogen.mj.world`` belongs to ``mj``."""
    return module.split(".")[1] if "." in module else ""


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path, *, typing_too: bool = True) -> Iterator[tuple[int, str]]:
    """Line and full name of every imported module, lazy imports included."""
    hidden: set[int] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            hidden |= {id(inner) for inner in ast.walk(node)}
        if id(node) in hidden and not typing_too:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            for alias in node.names:  # a name from a package may be a module of it
                whole = f"{node.module}.{alias.name}"
                yield node.lineno, whole if whole in MODULES else str(node.module)


def inside(file: Path) -> Iterator[tuple[int, str]]:
    """Imports of the project's own parts."""
    for line, module in imports(file):
        if module.startswith("robogen.") and part_of(module):
            yield line, module


def test_every_part_has_its_place():
    parts = {part_of(name_of(file)) for file in FILES} - {"", "_data"}
    assert parts <= set(LEVEL), f"say where {parts - set(LEVEL)} belong"


def test_arrows_point_down():
    wrong = []
    for file in FILES:
        mine = part_of(name_of(file))
        if not mine:
            continue  # the package itself only forwards names
        for line, module in inside(file):
            theirs = part_of(module)
            if theirs == mine:
                continue
            down = LEVEL[theirs] > LEVEL[mine]
            beside = LEVEL[theirs] == LEVEL[mine] and LEVEL[mine] in (*TOGETHER, 6, 9)
            if not (down or beside):
                wrong.append(f"{file.relative_to(PACKAGE)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_strangers_never_meet():
    wrong = [
        f"{file.relative_to(PACKAGE)}:{line} imports {module}"
        for group in STRANGERS
        for file in FILES
        if part_of(name_of(file)) in group
        for line, module in inside(file)
        if part_of(module) in group - {part_of(name_of(file))}
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_and_parts_import_in_no_circle():
    def module_arrows(name: str) -> set[str]:
        return {
            module
            for _, module in imports(MODULES[name], typing_too=False)
            if module in MODULES and module not in ("robogen", name)
        }

    between: dict[str, set[str]] = {}
    for name in MODULES:
        mine = part_of(name)
        if mine:
            others = {part_of(other) for other in module_arrows(name)} - {mine, ""}
            between[mine] = between.get(mine, set()) | others
    assert not circle({name: module_arrows(name) for name in MODULES})
    assert not circle(between)


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """A path that comes back to where it began, or nothing."""
    done: set[str] = set()

    def search(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(arrows.get(name, ())):
            found = search(other, [*path, name])
            if found:
                return found
        done.add(name)
        return []

    return next((found for name in sorted(arrows) if (found := search(name, []))), [])


@pytest.mark.parametrize("part", sorted(WITHOUT))
def test_parts_do_without_libraries(part: str):
    wrong = [
        f"{file.relative_to(PACKAGE)}:{line} imports {module}"
        for file in FILES
        if part_of(name_of(file)) == part
        for line, module in imports(file)
        if module.split(".")[0] in WITHOUT[part]
        and not (part == "scenes" and module == "mujoco")  # assembles specifications
        and not (name_of(file).startswith("robogen.scenes.adapters.") and module != "torch")
    ]
    assert not wrong, "\n".join(wrong)


def test_only_mj_touches_fields_of_the_simulator():
    """``world.model.field`` and ``world.data.field``, however the world is reached."""
    wrong = []
    for file in FILES:
        if part_of(name_of(file)) == "mj":
            continue
        for node in ast.walk(tree(file)):
            if not isinstance(node, ast.Attribute):
                continue
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr in ("model", "data"):
                path = ast.unparse(node)
                if "world" in path or "edit." in path or "scene." in path:
                    wrong.append(f"{file.relative_to(PACKAGE)}:{node.lineno} {path}")
    assert not wrong, "\n".join(wrong)


def test_only_mj_makes_simulator_state():
    made = ("MjModel", "MjData", "MjrContext", "MjvScene", "Renderer")
    wrong = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}"
        for file in FILES
        if part_of(name_of(file)) != "mj"
        for call in ast.walk(tree(file))
        if isinstance(call, ast.Call) and isinstance(node := call.func, ast.Attribute)
        if ast.unparse(node.value) == "mujoco"
        and (node.attr in made or node.attr.startswith(("mj_", "mjr_", "mjv_")))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_modules_are_short_and_documented(file: Path):
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{lines} lines; split it by noun"
    assert ast.get_docstring(tree(file)) or not tree(file).body


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield file, node


def test_only_the_command_line_prints():
    wrong = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file, node in calls("print")
        if part_of(name_of(file)) != "cli"
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("function", ["np.random.seed", "random.seed", "torch.manual_seed"])
def test_no_global_generator_is_seeded(function: str):
    """But inside ``fork_rng`` and in ``seeding``, which put the state back."""
    kept = {
        id(node)
        for file in FILES
        for block in ast.walk(tree(file))
        if isinstance(block, ast.With) and "fork_rng" in ast.unparse(block.items[0])
        for node in ast.walk(block)
    }
    assert not [
        f"{file.name}:{node.lineno}"
        for file, node in calls(function)
        if id(node) not in kept and file.name != "seeding.py"
    ]


def test_mistakes_of_users_are_errors_not_warnings():
    assert not [f"{file.name}:{node.lineno}" for file, node in calls("warnings.warn")]


def test_no_scene_factor_or_policy_is_named_in_the_mechanisms():
    """Names are data; the defaults of a study and examples in help texts are the exception."""
    from robogen.perturbations.library import available as factors
    from robogen.policies.library import available as policies
    from robogen.scenes.library import available as scenes

    names = {*factors(), *policies(), *scenes()}
    allowed = {"cli", "study"}
    wrong = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} '{node.value}'"
        for file in FILES
        if part_of(name_of(file)) in LEVEL and part_of(name_of(file)) not in allowed
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Compare | ast.Dict | ast.Set | ast.Tuple | ast.List)
        for node in ast.iter_child_nodes(node)
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not wrong, "\n".join(wrong)
