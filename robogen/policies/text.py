"""Instructions as fixed vectors: hashed words and character n-grams, no vocabulary, no download."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIZE = 256
NGRAMS = (3, 4, 5)
_NOT_WORD = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """Lower-case words separated by single spaces, without punctuation or accents' encodings."""
    return _NOT_WORD.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def features(text: str, *, size: int = SIZE) -> NDArray[np.float32]:
    """Feature vector (size,) of an instruction, of length 1, or 0 when it has no words.

    Words and the character n-grams of each word (bounded by spaces, so that prefixes and suffixes
    count) are hashed with BLAKE2 to a coordinate and a sign. The two groups weigh the same, so one
    word that matters is not drowned by the n-grams of the others.
    """
    words = normalise(text).split()
    vector = _hashed(Counter(f"w:{word}" for word in words), size)
    vector += _hashed(Counter(f"c:{gram}" for word in words for gram in _ngrams(word)), size)
    norm = float(np.linalg.norm(vector))
    return (vector / norm if norm > 0.0 else vector).astype(np.float32)


def _ngrams(word: str) -> Iterator[str]:
    padded = f" {word} "
    for length in NGRAMS:
        for start in range(len(padded) - length + 1):
            yield padded[start : start + length]


def _hashed(counts: Counter[str], size: int) -> NDArray[np.float64]:
    """Signed feature hashing of counted tokens, normalised to length 1."""
    vector = np.zeros(size)
    for token, count in counts.items():
        digest = int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest(), "little")
        vector[(digest >> 1) % size] += count if digest & 1 else -count
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm > 0.0 else vector
