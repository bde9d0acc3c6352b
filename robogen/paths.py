"""Where the shipped scenes, policies and perturbations lie."""

from __future__ import annotations

from pathlib import Path

GROUPS = ("scenes", "policies", "perturbations")


def config_root() -> Path:
    """Folder that holds the three data folders.

    In a wheel they are ``robogen/_data/{scenes,policies,perturbations}``; in a checkout (also an
    editable install) they lie beside the package, and the checkout wins so that nothing is stale.

    Raises:
        FileNotFoundError: Neither place holds them; the install is broken.
    """
    package = Path(__file__).resolve().parent
    candidates = (package.parent, package / "_data")
    for root in candidates:
        if all((root / group).is_dir() for group in GROUPS) and (
            root.name == "_data" or (root / "pyproject.toml").is_file()
        ):
            return root
    raise FileNotFoundError(
        "robogen's scenes/, policies/ and perturbations/ were found neither in "
        f"{candidates[0]} nor in {candidates[1]}; reinstall the package."
    )
