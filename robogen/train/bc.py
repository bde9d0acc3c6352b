"""Behaviour cloning of demonstrations, on one core, resumable and reproducible."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from robogen.policies.checkpoint import (
    CheckpointConfig,
    load_checkpoint,
    round_weights,
    save_checkpoint,
    version,
)
from robogen.policies.network import Output, Statistics, build, count
from robogen.seeding import entropy
from robogen.train.data import Batch, Demos, DemoSource
from robogen.train.recipe import BCRecipe
from robogen.train.state import TrainingState, refuse_other_training
from robogen.train.validation import Validation, points_distance, validate

# What may differ between two runs of one training: it moves no weight.
_PACE = ("validate_every", "save_every", "report_every")


class Progress(NamedTuple):
    """One report of a training under way."""

    step: int
    steps: int
    loss: float
    """Mean over the steps since the last report, as are the next three."""
    motion: float
    """Mean absolute error of the motion commands."""
    gripper: float
    """Gripper loss."""
    points_mm: float | None
    """Distance of predicted from true object positions [mm], on training batches."""
    rate: float
    """Learning rate."""
    validation: Validation | None
    """The newest validation so far."""
    ms_per_step: float
    """Wall time of a step since the last report [ms]."""


class TrainResult(NamedTuple):
    """What a training made."""

    checkpoint: Path
    scene: str
    parameters: int
    episodes: int
    """Episodes trained on."""
    held_out: int
    """Episodes validated on."""
    validation: Validation | None
    """Of the weights as stored."""
    dataset: str
    """Hash of the demonstrations."""
    seconds: float
    """Wall time of this run's steps; 0 when the training was already complete."""
    ms_per_step: float
    resumed_from: int
    """Step this run began at."""


class _Losses(NamedTuple):
    total: Tensor
    motion: Tensor
    gripper: Tensor
    points: Tensor
    """Mean distance [m], for people."""


def train_bc(
    datasets: Sequence[Path | str | DemoSource],
    out: Path | str,
    recipe: BCRecipe | None = None,
    progress: Callable[[Progress], None] | None = None,
    *,
    resume: bool = True,
    command: str = "",
    threads: int = 1,
) -> TrainResult:
    """Train a policy on demonstrations and write its checkpoint.

    The same call continues an interrupted training from its last state on disk
    (``<out>.partial``), and returns at once when the training is already complete. Equal data,
    recipe and command give an equal file on one machine, interrupted or not.

    Args:
        datasets: Dataset folders, or parts of them.
        out: Checkpoint to write.
        recipe: Every choice of the training; None takes the defaults.
        progress: Called every ``recipe.report_every`` steps.
        resume: False starts again and replaces what ``out`` holds.
        command: Recorded in the checkpoint, for people.
        threads: Threads of torch while training.

    Raises:
        ConfigError: There is nothing to train on, or ``out`` belongs to another training.
        PolicyError: ``out`` cannot be written.
        RecordsError: A dataset is damaged or does not fit the others.
    """
    out = Path(out)
    recipe = BCRecipe() if recipe is None else recipe
    sources = [
        item if isinstance(item, DemoSource) else DemoSource(folder=Path(item)) for item in datasets
    ]
    with _torch_threads(threads):
        demos = Demos(sources, recipe)
        run = _Training(demos, out, recipe)
        if resume and run.complete():
            return run.result(resumed_from=recipe.steps, seconds=0.0)
        resumed_from = run.restore() if resume else 0
        started = time.perf_counter()
        run.train(progress)
        seconds = time.perf_counter() - started
        run.finish(command)
        return run.result(resumed_from=resumed_from, seconds=seconds)


class _Training:
    """One training: its data, its state, its files."""

    def __init__(self, demos: Demos, out: Path, recipe: BCRecipe) -> None:
        self._demos = demos
        self._out = out
        self._partial = out.with_name(f"{out.name}.partial")
        self._recipe = recipe
        self._statistics = demos.statistics()
        network = build(demos.network_config(), self._statistics, seed=_network_seed(recipe))
        self._state = TrainingState(network, recipe)
        choices = {name: item for name, item in recipe.to_json().items() if name not in _PACE}
        self._key = {"dataset": demos.digest, "recipe": choices}
        self._validation: Validation | None = None

    def complete(self) -> bool:
        """Whether the checkpoint is already there; another training's is refused."""
        if not self._out.exists():
            return False
        training = load_checkpoint(self._out).config.training
        found = {name: training.get(name) for name in self._key}
        refuse_other_training(self._out, found, self._key)
        stored = training.get("validation")
        self._validation = None if stored is None else Validation(**stored)
        return True

    def restore(self) -> int:
        """Continue from the state on disk, if there is one; returns the step it had reached."""
        if self._partial.exists():
            self._state.load(self._partial, self._key)
        return self._state.step

    def train(self, progress: Callable[[Progress], None] | None) -> None:
        """Take all remaining steps."""
        recipe, state = self._recipe, self._state
        sums, since, clock = [0.0] * 4, 0, time.perf_counter()
        while state.step < recipe.steps:
            rate = learning_rate(recipe, state.step)
            losses = self._step(rate)
            sums = [total + float(loss) for total, loss in zip(sums, losses, strict=True)]
            since += 1
            last = state.step == recipe.steps
            if not last and state.step % recipe.validate_every == 0:
                self._validation = validate(state.network, self._demos, self._statistics)
            if progress and (last or state.step % recipe.report_every == 0):
                loss, motion, gripper, points = (total / since for total in sums)
                now = time.perf_counter()
                progress(
                    Progress(
                        step=state.step,
                        steps=recipe.steps,
                        loss=loss,
                        motion=motion,
                        gripper=gripper,
                        points_mm=1000.0 * points if state.network.config.points else None,
                        rate=rate,
                        validation=self._validation,
                        ms_per_step=1000.0 * (now - clock) / since,
                    )
                )
                sums, since, clock = [0.0] * 4, 0, now
            if not last and state.step % recipe.save_every == 0:
                state.save(self._partial, self._key)

    def finish(self, command: str) -> None:
        """Round the weights to what is stored, validate those, write the checkpoint."""
        stored = round_weights(self._state.weights())
        network = self._state.network
        network.load_state_dict({name: tensor.float() for name, tensor in stored.items()})
        self._validation = validate(network, self._demos, self._statistics)
        demos, recipe = self._demos, self._recipe
        action = replace(demos.meta.action, chunk=recipe.chunk, execute=recipe.execute)
        config = CheckpointConfig(
            scene=demos.meta.scene,
            network=network.config,
            statistics=self._statistics,
            state=demos.state,
            action=action,
            render=demos.meta.render,
            binary_gripper=demos.binary_gripper,
            training={
                **self._key,
                "command": command,
                "episodes": demos.episodes[0],
                "validation": self._validation and self._validation._asdict(),
                "version": version(),
                "torch": str(torch.__version__),
            },
        )
        save_checkpoint(self._out, stored, config)
        self._partial.unlink(missing_ok=True)

    def result(self, *, resumed_from: int, seconds: float) -> TrainResult:
        """Summary, once the checkpoint is written."""
        taken = self._recipe.steps - resumed_from
        return TrainResult(
            checkpoint=self._out,
            scene=self._demos.meta.scene,
            parameters=count(self._state.network),
            episodes=self._demos.episodes[0],
            held_out=self._demos.episodes[1],
            validation=self._validation,
            dataset=self._demos.digest,
            seconds=seconds,
            ms_per_step=1000.0 * seconds / taken if taken else 0.0,
            resumed_from=resumed_from,
        )

    def _step(self, rate: float) -> _Losses:
        """One gradient step."""
        recipe, state = self._recipe, self._state
        batch = self._demos.sample(state.step)
        output = state.network(batch.frames, batch.state, batch.text)
        losses = _losses(output, batch, self._statistics, recipe)
        state.optimizer.zero_grad()
        losses.total.backward()  # type: ignore[no-untyped-call]
        if recipe.clip > 0.0:
            torch.nn.utils.clip_grad_norm_(state.network.parameters(), recipe.clip)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        state.advance()
        return losses._replace(total=losses.total.detach())


def learning_rate(recipe: BCRecipe, step: int) -> float:
    """Rate of a step (0-based): linear warm-up, then cosine decay to ``final_rate``."""
    warmup = min(recipe.warmup, recipe.steps - 1)
    if step < warmup:
        return recipe.learning_rate * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(recipe.steps - warmup, 1)
    cosine = 0.5 * (1.0 + math.cos(math.pi * done))
    return recipe.learning_rate * (recipe.final_rate + (1.0 - recipe.final_rate) * cosine)


def _losses(output: Output, batch: Batch, statistics: Statistics, recipe: BCRecipe) -> _Losses:
    motion = (output.motion - batch.actions[..., :-1]).abs().mean()
    target = batch.actions[..., -1]
    if recipe.gripper_loss == "bce":
        # The logit of closing is twice the output, so that tanh(output) = 2 P(close) - 1.
        gripper = functional.binary_cross_entropy_with_logits(
            2.0 * output.gripper, 0.5 * (target + 1.0)
        )
    else:
        gripper = (torch.tanh(output.gripper) - target).abs().mean()
    total = motion + recipe.gripper_weight * gripper
    distance = torch.zeros(())
    if batch.points.shape[1]:
        wanted = (batch.points - statistics.points_mean) / statistics.points_std
        total = total + recipe.points_weight * (output.points - wanted).abs().mean()
        with torch.no_grad():
            distance = points_distance(output, batch.points, statistics).mean()
    return _Losses(total, motion.detach(), gripper.detach(), distance)


def _network_seed(recipe: BCRecipe) -> int:
    return entropy("train", recipe.seed, "network") % 2**63


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
