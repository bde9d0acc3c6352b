"""Five recipes for one scene: train them with several seeds, evaluate, tabulate.

    python benchmarks/baselines.py train                 # demonstrations and checkpoints
    python benchmarks/baselines.py evaluate              # two studies, resumable
    python benchmarks/baselines.py table docs/results/baselines.md

Everything lies under runs/baselines and is continued where it stopped. Seed 0 of each recipe is
what the project ships; the other seeds answer whether a recipe, and not one training, is better.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from robogen.report.load import Run, load_run
from robogen.report.words import change_text, factor_name, rate_text
from robogen.stats import ConditionSummary, Verdict

ROOT = Path("runs/baselines")
NOMINAL, RANDOM = ROOT / "demos", ROOT / "demos-random"
FACTORS = (
    "background_texture", "camera_fov", "camera_pose", "distractors", "floor_texture", "image_blur",
    "image_brightness", "image_noise", "light_color", "light_direction", "light_intensity",
    "manipulated_color", "manipulated_texture", "object_position", "object_size", "receiver_color",
    "robot_pose", "table_color", "table_texture",
)  # fmt: skip
RECIPES: dict[str, tuple[str, Path, tuple[str, ...]]] = {
    "nominal": ("bc", NOMINAL, ("steps=3000",)),
    "augment": ("bc_augment", NOMINAL, ("steps=3000", "jitter=1")),
    "random": ("bc_random", RANDOM, ("steps=3000",)),
    "state": ("bc_state", NOMINAL, ("steps=6000", "inputs=points")),
    "quarter": ("bc_quarter", NOMINAL, ("steps=3000", "episodes=60")),
}
"""Recipe to the shipped policy of its seed 0, its demonstrations, and its training settings."""
COMPARED = ("nominal", "augment", "random")
PHOTOMETRIC = ("image_brightness", "light_color", "light_intensity")
COLOURS = ("table_color", "receiver_color", "manipulated_color", "table_texture")
SEEDS = 3


def main() -> None:
    """Run the part that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=("train", "evaluate", "table"))
    parser.add_argument("file", nargs="?", type=Path, help="Markdown file of the table")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--workers", default="null")
    asked = parser.parse_args()
    if asked.part == "train":
        train(range(asked.seeds))
    elif asked.part == "evaluate":
        evaluate(range(asked.seeds), asked.episodes, asked.workers)
    else:
        text = table(load_run(ROOT / "five"), load_run(ROOT / "seeds"), asked.seeds)
        if asked.file is None:
            print(text)
        else:
            asked.file.write_text(text, encoding="utf-8")


def robogen(*words: str) -> None:
    """One command of the project."""
    print("robogen", *words, flush=True)
    subprocess.run([sys.executable, "-m", "robogen", *words], check=True)


def train(seeds: Iterable[int]) -> None:
    """Both sets of demonstrations, and every recipe with every seed."""
    collect = ("collect", "scene=pick", "episodes=240", "format=episodes")
    robogen(*collect, f"out={NOMINAL}")
    robogen(*collect, f"out={RANDOM}", f"factors=[{','.join(FACTORS)}]")
    for seed in seeds:
        for recipe, (_, demos, settings) in RECIPES.items():
            robogen("train", f"data={demos}", f"out={weights(recipe, seed)}", *settings,
                    f"seed={seed}")  # fmt: skip


def weights(recipe: str, seed: int) -> Path:
    """Checkpoint of one training."""
    return ROOT / f"{recipe}-{seed}.safetensors"


def evaluate(seeds: Sequence[int], episodes: int, workers: str) -> None:
    """The shipped five under every factor; the seeds under what their recipes should help with."""
    how = (f"episodes={episodes}", f"workers={workers}", "videos=0")
    shipped = ",".join(policy for policy, _, _ in RECIPES.values())
    robogen("eval", "scene=pick", f"policy=[{shipped}]", "suite=all", *how, f"out={ROOT / 'five'}")
    folder = ROOT / "config" / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{recipe}-{seed}" for recipe in COMPARED for seed in seeds]
    for name in names:
        file = (ROOT / f"{name}.safetensors").resolve()
        text = f"_target_: robogen.policies.bc.BCPolicy\ncheckpoint: {file}\n"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    robogen(
        "eval", "scene=pick", f"policy=[{','.join(names)}]",
        f"perturbation=[{','.join((*PHOTOMETRIC, *COLOURS))}]", *how, f"out={ROOT / 'seeds'}",
        "--config-dir", str(ROOT / "config"),
    )  # fmt: skip


# -- tables ----------------------------------------------------------------------------------------


def table(five: Run, seeds: Run, count: int) -> str:
    """Both studies as Markdown."""
    parts = [
        "# Five baselines on pick\n",
        f"Written by `python benchmarks/baselines.py table`; `train` and `evaluate` of the same "
        f"script made what it tabulates. robogen {version('robogen')}, MuJoCo {version('mujoco')}, "
        f"torch {version('torch')}, {os.cpu_count()} cores.\n",
        "## One checkpoint each\n",
        "Success with Wilson's 95 % interval, on matched episodes; ◆ marks what breaks a policy "
        "against its own nominal (exact McNemar test, Holm's correction over its conditions).\n",
        matrix(five),
        "\nThe same as change from each policy's nominal, in points with Newcombe's paired 95 % "
        "interval:\n",
        matrix(five, changes=True),
        "\n## Recipes: several training seeds\n",
        f"{count} trainings each that differ in nothing but the seed (initial weights, batches, "
        "held-out episodes), on the same matched episodes.\n",
    ]
    for recipe in COMPARED[1:]:
        parts += [f"\n### {recipe} against nominal\n", compared(seeds, recipe)]
    return "\n".join(parts)


def matrix(run: Run, *, changes: bool = False) -> str:
    """Conditions down, policies across; what hurts the first policy most is on top."""
    order = [policy for policy, _, _ in RECIPES.values()]
    groups = {group.policy: group for group in run.summary.groups}
    found = {
        policy: {
            item.condition: item
            for item in (groups[policy].nominal, *groups[policy].conditions)
            if item is not None
        }
        for policy in order
    }
    rows = [name for name in found[order[0]] if not (changes and name == "nominal")]
    lines = [["condition", *order], ["---", *["---:"] * len(order)]]
    for name in rows:
        cells = [cell(found[policy].get(name), changes) for policy in order]
        lines.append([factor_name(name), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(item: ConditionSummary | None, changes: bool) -> str:
    """One policy under one condition."""
    if item is None:
        return ""
    if item.verdict is Verdict.NOT_OBSERVED:
        return "not observed"
    text = change_text(item.degradation) if changes else rate_text(item.rate)
    return f"{text} ◆" if item.verdict is Verdict.BREAKS else text


def compared(run: Run, recipe: str) -> str:
    """The comparison as the command prints it."""
    file = ROOT / f"{recipe}.md"
    robogen("compare", str(run.folder), "--a", "nominal-*", "--b", f"{recipe}-*", "--of", "recipes",
            "--markdown", str(file))  # fmt: skip
    return file.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
