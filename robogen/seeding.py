"""Random streams that do not move each other.

Every random number of an episode comes from a generator keyed by *what it is for*:
``(domain, study seed, scene, episode, stream name)``. Adding a factor, a camera or a worker
opens new streams and leaves the old ones as they were. Evaluation, collection and training
draw from different ``domain`` s, so their seeds cannot meet.

Keys are hashed with BLAKE2 to the entropy of a :class:`numpy.random.SeedSequence` (Python's own
``hash`` is salted per process and would not be reproducible).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np

Domain = Literal["evaluate", "collect", "validate", "train"]


def entropy(*key: str | int) -> int:
    """128-bit entropy of a key; equal keys give equal entropy on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(*key: str | int) -> np.random.Generator:
    """A generator for exactly this key."""
    return np.random.default_rng(np.random.SeedSequence(entropy(*key)))


class EpisodeSeed:
    """Names one episode's random streams.

    Args:
        domain: What the episode is for; keeps evaluation apart from collection.
        study: The study seed the user chose.
        scene: Scene name.
        episode: Episode index, 0-based.
    """

    def __init__(self, *, domain: Domain, study: int, scene: str, episode: int) -> None:
        self.domain: Domain = domain
        self.study = int(study)
        self.scene = scene
        self.episode = int(episode)

    def stream(self, *name: str | int) -> np.random.Generator:
        """The generator of one named stream of this episode."""
        return generator(self.domain, self.study, self.scene, self.episode, *name)

    def integer(self, *name: str | int) -> int:
        """A 32-bit seed of one named stream, for libraries that want an int."""
        return int(self.stream(*name).integers(0, 2**31 - 1))


@contextmanager
def lent_generators(seed: int | None = None) -> Iterator[None]:
    """Around somebody else's code that draws from Python's and NumPy's global generators.

    They begin from ``seed``, where it is given, and are afterwards as they were.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    if seed is not None:
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
