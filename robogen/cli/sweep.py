"""Several studies from one command: comma-separated values, in every combination."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from robogen.errors import ConfigError

if TYPE_CHECKING:
    from robogen.study.design import Design

_NAMED = ("scene", "policy", "perturbation", "suite")
"""Keys that a run folder's default name already tells."""


class Job(NamedTuple):
    """One study of a sweep."""

    words: tuple[str, ...]
    swept: tuple[str, ...] = ()
    """The words that differ between jobs."""

    @property
    def name(self) -> str:
        """The words that differ between jobs."""
        return " ".join(self.swept) or "the only one"

    def run_dir(self, design: Design) -> Path:
        """The study's folder; swept words make it the job's own."""
        from robogen.study.study import default_run_dir

        base = Path(design.config.out) if design.config.out else default_run_dir(design)
        if design.config.out:
            return base / _plain(self.swept) if self.swept else base
        rest = [word for word in self.swept if word.partition("=")[0] not in _NAMED]
        return base.with_name(f"{base.name}-{_plain(rest)}") if rest else base

    def dataset(self, design: Design) -> Path | None:
        """Where the study's episodes are recorded to, if anywhere; each job has its own."""
        if design.config.record_dataset is None:
            return None
        base = Path(design.config.record_dataset)
        return base / _plain(self.swept) if self.swept else base


def _plain(words: Sequence[str]) -> str:
    """Words as a folder's name."""
    return ",".join(re.sub(r"[^\w.=+-]", "_", word) for word in words)


def jobs(words: Sequence[str]) -> list[Job]:
    """Every combination of the swept values, as Hydra's basic sweeper forms them.

    Raises:
        ConfigError: A word cannot be read, or nothing is swept.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for word in words:
        if "=" not in word:
            raise ConfigError(
                f"Got '{word}', expected key=value, or key=a,b to sweep over a and b."
            )
    try:
        overrides = OverridesParser.create().parse_overrides(list(words))
        [batch] = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    except HydraException as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"The sweep cannot be read: {reason}. Correct it.") from error
    swept = {item.get_key_element() for item in overrides if item.is_sweep_override()}
    if not swept:
        raise ConfigError(
            "--multirun was given, but no setting has several values. Write e.g. "
            "severity=0.25,0.5,1; a list within one study is [a,b]."
        )
    return [
        Job(
            words=tuple(combination),
            swept=tuple(word for word in combination if word.partition("=")[0] in swept),
        )
        for combination in batch
    ]
