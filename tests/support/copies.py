"""A copy of package and tests in which a mistake may be planted: the tree itself is never changed."""

import os
import shutil
from pathlib import Path

from minadv.fast import choice

ROOT = Path(__file__).parents[2]


def copy_tree(copy: Path) -> None:
    """Copy what the tests need into a folder."""
    for part in ("minadv", "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)


def environment(copy: Path) -> dict[str, str]:
    """The environment in which tests find the copy, and run alike in every run."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    kept |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "mutants"}
    kept[choice.COMPILED] = (
        "0"  # in a copy everything would be compiled again; the tests of compiled steps do it anyway
    )
    return kept


QUIET = ("-x", "-q", "-p", "no:cacheprovider", "--assert=plain")  # that a test fails is enough, not why
