"""Maps the top-level data folders into the wheel; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

DATA = ("scenes", "policies", "perturbations")

setup(
    packages=[
        *find_packages(include=["robogen", "robogen.*"]),
        *(f"robogen._data.{d}" for d in DATA),
    ],
    package_dir={f"robogen._data.{d}": d for d in DATA},
    package_data={"robogen": ["py.typed", "**/*.html", "**/*.css", "**/*.j2"]}
    | {f"robogen._data.{d}": ["**/*"] for d in DATA},
)
