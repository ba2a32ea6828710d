"""The suite notices mistakes: each mutant makes the file of tests that should catch it fail."""

from pathlib import Path

import numpy as np
import pytest

import minadv
from tests.support import mutants, mutants_adversary, mutants_training, mutants_words
from tests.support.museum import MUSEUM
from tests.support.mutants import TESTS_FAILED, run

MUTANTS = [
    *mutants.MUTANTS,
    *mutants_adversary.MUTANTS,
    *mutants_training.MUTANTS,
    *mutants_words.MUTANTS,
    *(piece.mutant for piece in MUSEUM),
]


@pytest.fixture(autouse=True)
def once(xp):
    if xp is not np:
        pytest.skip("the mutants are of text that both backends share: running them on NumPy is enough")


def expect_numba_for(file):
    """Skip where Numba is missing and the tests of a file, all of them, need it."""
    if file.startswith("fast/test_numba_"):
        pytest.importorskip("numba", reason="Numba is not installed: pip install minadv[fast]")


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted({mutant.caught_by for mutant in MUTANTS}))
def test_the_copy_without_a_mutant_passes(file):
    expect_numba_for(file)
    result = run(None, [file])
    assert result.returncode == 0, (
        f"tests/{file} of the copy: exit code {result.returncode}\n{result.stdout}{result.stderr}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_mutant_is_caught(mutant):
    expect_numba_for(mutant.caught_by)
    result = run(mutant, [mutant.caught_by])
    assert result.returncode == TESTS_FAILED, f"exit code {result.returncode}\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_a_mutant_changes_a_line_that_stands_there(file):
    text = (Path(minadv.__file__).parent / file).read_text()
    for mutant in (mutant for mutant in MUTANTS if mutant.file == file):
        assert mutants.planted(text, mutant) != text


def test_each_mutant_has_a_name_of_its_own():
    names = [(mutant.file, mutant.name) for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("piece", MUSEUM, ids=lambda piece: piece.mutant.name)
def test_a_piece_of_the_museum_says_what_it_does(piece):
    assert piece.mutant.name.startswith("museum: ")
    assert piece.effect.endswith(".")
    assert piece.source.startswith(("https://github.com/", "it is in the paper's "))
