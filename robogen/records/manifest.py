"""``manifest.json``: the design of a study and the machine that runs it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robogen.errors import RecordsError
from robogen.records.schema import plain

MANIFEST = "manifest.json"

_ABSENT = object()


def write_manifest(run_dir: Path | str, manifest: Mapping[str, Any]) -> Path:
    """Write the manifest whole or not at all: a new file is renamed over the old one.

    Raises:
        RecordsError: The folder cannot be written.
        ValueError: A number in the manifest is not finite.
    """
    folder = Path(run_dir)
    file = folder / MANIFEST
    value = plain(manifest, path="manifest")
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    temporary = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=folder, prefix=".manifest-", delete=False
        ) as stream:
            temporary = stream.name
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)  # temporary files are private, a manifest is not
        os.replace(temporary, file)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise RecordsError(
            f"Cannot write {file} ({error.strerror or error}). Check the folder's permissions and "
            "free space, or pass another run folder."
        ) from error
    return file


def read_manifest(run_dir: Path | str) -> dict[str, Any]:
    """Read the manifest of a run folder.

    Raises:
        RecordsError: It is missing, or not a JSON object.
    """
    file = Path(run_dir) / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordsError(
            f"{Path(run_dir)} holds no {MANIFEST}: it is not a run folder. Pass the folder that "
            "'robogen eval' wrote."
        ) from error
    except (OSError, ValueError) as error:
        raise RecordsError(
            f"{file} cannot be read ({error}). Restore it from a copy, or run the study again in "
            "another folder."
        ) from error
    if not isinstance(manifest, dict):
        raise RecordsError(
            f"{file} holds a JSON {type(manifest).__name__}, not an object. Restore it from a "
            "copy, or run the study again in another folder."
        )
    return manifest


def fingerprint_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two fingerprints, one phrase per field, ordered by field.

    Nested fields are named with dots: ``"gl.renderer: was 'llvmpipe', is 'NVIDIA H200'"``.
    """
    before, after = _flat(old), _flat(new)
    changes = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if was is _ABSENT:
            changes.append(f"{name}: was not recorded, is {now!r}")
        elif now is _ABSENT:
            changes.append(f"{name}: was {was!r}, is not recorded now")
        elif was != now:
            changes.append(f"{name}: was {was!r}, is {now!r}")
    return changes


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            flat.update(_flat(item, f"{prefix}{name}."))
        else:
            # tuples become lists when a manifest is written, which is no change
            flat[f"{prefix}{name}"] = list(item) if isinstance(item, tuple) else item
    return flat
