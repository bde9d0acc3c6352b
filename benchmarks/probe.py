"""What `robogen probe` notices, and how often it cries wolf: both measured on the shipped `bc`.

    python benchmarks/probe.py > docs/results/probe.md

Every wrong wiring of robogen.probe.miswired on every scene, and the intact policy on many samples
of demonstrations. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from importlib.metadata import version

from robogen.policies.base import Policy
from robogen.policies.library import load_policy
from robogen.probe import ProbeConfig, ProbeResult, probe
from robogen.probe.miswired import faults
from robogen.probe.samples import Data, from_scene
from robogen.scenes.base import Scene
from robogen.scenes.load import load_scene
from robogen.stats import clopper_pearson

SCENES = ("pick", "drawer", "push")


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scene", nargs="+", default=list(SCENES))
    parser.add_argument("--samples", type=int, default=20, help="of intact probes per scene")
    asked = parser.parse_args()
    config = ProbeConfig()
    print("# What the probe notices\n")
    print(
        "Written by `python benchmarks/probe.py > docs/results/probe.md`: the shipped `bc`, "
        f"{config.episodes} demonstrations of the expert, about {config.frames} moments. robogen "
        f"{version('robogen')}, MuJoCo {version('mujoco')}, torch {version('torch')}, "
        f"{os.cpu_count()} cores.\n"
    )
    print("## Wrong on purpose\n")
    print("*Named* means that the probe says which convention is wrong and what it should be.\n")
    print("| scene | wrong wiring | noticed | named | agreement | said |")
    print("| --- | --- | --- | --- | --- | --- |")
    alarms: list[tuple[str, list[bool]]] = []
    for name in asked.scene:
        scene, policy = load_scene(name), load_policy("bc", scene=name)
        policy.fit(scene.spec)

        first = demonstrations(scene, policy, config, seed=0)
        for fault in faults(policy, scene.spec):
            result = probe(fault.policy, first, config=config)
            print(row(name, fault.name, fault.caught(result), fault.named(result), result))
        for other in (scene_name for scene_name in SCENES if scene_name != name):
            stranger = load_policy("bc", scene=other)
            result = probe(stranger, first, config=config)
            said = result.suspicious
            print(row(name, f"checkpoint of {other}", bool(said), "low agreement" in said, result))
            stranger.close()
        found = []
        for seed in range(asked.samples):
            result = probe(policy, demonstrations(scene, policy, config, seed=seed), config=config)
            found.append(bool(result.suspicious))
            if result.suspicious:
                print(f"<!-- intact {name}, seed {seed}: {', '.join(result.suspicious)} -->")
        alarms.append((name, found))
        policy.close()
        scene.close()
    print("\n## False alarms\n")
    print("The intact policy, each time on other demonstrations.\n")
    print("| scene | probes | with anything suspicious | rate, 95 % (Clopper-Pearson) |")
    print("| --- | ---: | ---: | ---: |")
    for name, found in alarms:
        low, high = clopper_pearson(sum(found), len(found))
        print(
            f"| {name} | {len(found)} | {sum(found)} | {100 * sum(found) / len(found):.0f} % "
            f"[{100 * low:.0f}, {100 * high:.0f}] |"
        )


def demonstrations(scene: Scene, policy: Policy, config: ProbeConfig, *, seed: int) -> Data:
    """The expert's, as the policy sees them."""
    return from_scene(
        scene,
        policy.spec.observation,
        config.episodes,
        seed=seed,
        progress=lambda done, total: None,
    )


def row(scene: str, name: str, caught: bool, named: bool, result: ProbeResult) -> str:
    """One line of the table."""
    yes = {True: "yes", False: "**no**"}
    agreement = result.agreement
    change = f"{100 * agreement.agreement:.0f} %"
    if agreement.mended != agreement.agreement:
        change += f" to {100 * agreement.mended:.0f} %"
    said = "; ".join(
        f"{f.convention}: {f.best}" for f in agreement.findings if f.verdict.value == "suspicious"
    )
    numbers = "; ".join(n.what for n in result.numbers if n.verdict.value == "suspicious")
    low = "" if agreement.agrees else "low agreement"
    text = "; ".join(part for part in (said, numbers, low) if part) or "nothing suspicious"
    return f"| {scene} | {name} | {yes[caught]} | {yes[named]} | {change} | {text} |"


if __name__ == "__main__":
    main()
