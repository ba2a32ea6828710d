"""What the differences from the paper measure: the counts and shares that the page prints."""

import pytest

pytest.importorskip("sklearn", reason="the network of the page is trained on scikit-learn's digits")
from _site import effects


def test_the_rules_flip_what_they_are_known_to():
    """4, 41 and 70 flips of Algorithm 1 for budgets of 3, 40 and 69; 10 as it is printed, or every unit."""
    [[_, told, _]] = effects.rules()
    first, second, third = told.split("; ")
    assert first == "budget 3 of 100: strict 3, Alg. 1 counting 4, Alg. 1 as printed 10, sMNIST code 3, text code 2"
    assert "strict 40, Alg. 1 counting 41, Alg. 1 as printed 1024" in second
    assert "strict 69, Alg. 1 counting 70, Alg. 1 as printed 1150" in third


def test_a_start_at_the_full_network_finds_nothing():
    assert effects.shares("greedy", {"start": "base"}, seeds=[0]) == 0
    assert effects.shares("greedy", {}, seeds=[0, 1]) > 0.1
    assert effects.shares("exact", {}, seeds=[0]) == pytest.approx(1)


def test_every_row_says_what_how_much_and_from_where():
    rows = effects.rows()
    assert len(rows) >= 11
    assert all(len(row) == 3 and all(row) for row in rows)
    assert not any("nan" in row[1] for row in rows)


def test_the_two_forms_of_the_map_agree():
    [[_, told, _]] = effects.one_pass()
    assert float(told.split("at most ")[1].split(" of")[0]) < 1e-10
