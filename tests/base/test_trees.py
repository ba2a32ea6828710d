"""Trees of arrays: names, order, mapping and adding."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

from minadv.base.trees import leaves, tree_add, tree_map


@dataclass(frozen=True)
class Pair:
    a: Any
    b: Any


Point = namedtuple("Point", ["x", "y"])

TREE = {"first": Pair(1, None), "second": [2, (3, Point(4, 5))]}


def test_leaves_have_paths_in_order_and_none_is_no_leaf():
    assert list(leaves(TREE)) == [
        ("first.a", 1),
        ("second.0", 2),
        ("second.1.0", 3),
        ("second.1.1.0", 4),
        ("second.1.1.1", 5),
    ]


def test_a_leaf_is_a_tree():
    assert list(leaves(7)) == [("", 7)]
    assert tree_map(lambda a: a + 1, 7) == 8
    assert list(leaves(None)) == []


def test_map_keeps_the_structure():
    doubled = tree_map(lambda a: 2 * a, TREE)
    assert doubled == {"first": Pair(2, None), "second": [4, (6, Point(8, 10))]}
    assert isinstance(doubled["second"][1][1], Point)


def test_map_over_two_trees():
    assert tree_map(lambda a, b: a - b, Pair(5, {"k": 3}), Pair(1, {"k": 2})) == Pair(4, {"k": 1})


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (Pair(1, {"z": 2}), r"at b: \['k'\] and \['z'\]"),
        (3, r"at the root: \['a', 'b'\] and None"),
        ((1, 2), "at the root"),
    ],
)
def test_map_says_where_trees_differ(other, where):
    with pytest.raises(ValueError, match=where):
        tree_map(lambda a, b: a, Pair(1, {"k": 2}), other)


def test_add():
    assert tree_add(Pair(1, [2, 3]), Pair(10, [20, 30])) == Pair(11, [22, 33])


def test_add_takes_the_other_where_one_is_none():
    assert tree_add(Pair(1, None), Pair(None, [2])) == Pair(1, [2])
    assert tree_add(None, 3) == 3


def test_add_wants_one_structure():
    with pytest.raises(ValueError, match=r"trees differ: \['k'\] and \['z'\]"):
        tree_add({"k": 1}, {"z": 1})
