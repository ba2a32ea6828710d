"""The suite notices mistakes: each mutant makes the file of tests that should catch it fail."""

import numpy as np
import pytest

from tests.support import mutants, mutants_adversary, mutants_words
from tests.support.mutants import TESTS_FAILED, run

MUTANTS = [*mutants.MUTANTS, *mutants_adversary.MUTANTS, *mutants_words.MUTANTS]


@pytest.fixture(autouse=True)
def once(xp):
    if xp is not np:
        pytest.skip("the mutants are of text that both backends share: running them on NumPy is enough")


def test_the_copy_without_a_mutant_passes():
    result = run(None, sorted({mutant.caught_by for mutant in MUTANTS}))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_mutant_is_caught(mutant):
    if mutant.file in ("fast/numba_steps.py", "fast/numba_pass.py"):
        pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")
    result = run(mutant, [mutant.caught_by])
    assert result.returncode == TESTS_FAILED, f"exit code {result.returncode}\n{result.stdout}{result.stderr}"
