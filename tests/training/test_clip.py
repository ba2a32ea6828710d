"""Clipping against its formula, group by group."""

from typing import Any

import numpy as np
import pytest

from minadv.backend import to_host
from minadv.base.trees import leaves
from minadv.training.clip import Clip, choose, clip_norm, clip_value, global_norm
from tests.support.compare import assert_close, assert_same_bits

NAMES = {"embedding.E", "embeddings", "cell.W", "cell.b"}


@pytest.fixture
def grads(rng: Any) -> Any:
    draw = rng.standard_normal
    return {"embedding": {"E": draw((5, 2))}, "embeddings": draw(3), "cell": {"W": draw((2, 4)), "b": draw(4)}}


def norm_of(tree: Any, names: set[str]) -> float:
    return float(np.sqrt(sum(float(x) ** 2 for name, a in leaves(tree) if name in names for x in a.ravel())))


GROUPS = pytest.mark.parametrize(
    ("how", "group"),
    [
        ({}, NAMES),
        ({"but": ("embedding",)}, NAMES - {"embedding.E"}),
        ({"only": ("cell", "embedding.E")}, {"cell.W", "cell.b", "embedding.E"}),
        ({"only": ("cell",), "but": ("cell.b",)}, {"cell.W"}),
    ],
)


@GROUPS
def test_norm_of_a_group(grads: Any, how: dict[str, Any], group: set[str], put: Any) -> None:
    assert choose(grads, **how) == group
    norm = norm_of(grads, group)
    clipped, given = clip_norm(put(grads), norm / 4, **how)
    assert float(given) == pytest.approx(norm, rel=1e-14)
    assert float(global_norm(clipped, group)) == pytest.approx(norm / 4, rel=1e-14)
    expected, found = dict(leaves(grads)), dict(leaves(to_host(clipped)))
    for name in NAMES:
        assert_close(found[name], expected[name] * (0.25 if name in group else 1), 1e-14)


@GROUPS
def test_values_of_a_group(grads: Any, how: dict[str, Any], group: set[str], put: Any) -> None:
    clip = Clip(0.1, "value", **how)
    assert clip.group(grads) == group
    clipped, _ = clip(put(grads))
    assert_same_bits(clipped, clip_value(put(grads), 0.1, **how))
    found = dict(leaves(to_host(clipped)))
    for name, g in leaves(grads):
        assert_same_bits(found[name], g.clip(-0.1, 0.1) if name in group else g)


def test_gradients_within_the_limit_stay_as_they_are(grads: Any, put: Any) -> None:
    clipped, norm = clip_norm(put(grads), 1e3)
    assert_same_bits(clipped, grads)
    assert float(norm) == pytest.approx(norm_of(grads, NAMES))


def test_values(grads: Any, put: Any) -> None:
    clipped = clip_value(put(grads), 0.5, but=("cell.W",))
    found, expected = dict(leaves(to_host(clipped))), dict(leaves(grads))
    for name in NAMES - {"cell.W"}:
        assert_same_bits(found[name], np.minimum(np.maximum(expected[name], -0.5), 0.5))
    assert_same_bits(found["cell.W"], expected["cell.W"])
    assert np.abs(found["cell.W"]).max() > 0.5
    assert Clip(0.5, "value")(put(grads))[1] is None  # what is cut entry by entry needs no norm


@pytest.mark.parametrize("how", ["norm", "value"])
def test_float32_stays_and_arguments_are_not_changed(how: Any, grads: Any, put: Any) -> None:
    single = put({name: a.astype(np.float32) for name, a in leaves(grads)})
    before = {name: a.copy() for name, a in single.items()}
    clipped, norm = Clip(0.1, how)(single)
    assert {a.dtype for _, a in leaves(clipped)} == {np.dtype(np.float32)}
    assert norm is None or norm.dtype == np.float64
    assert_same_bits(single, before)


def test_several_groups_are_several_clips(grads: Any, put: Any) -> None:
    clipped, first = clip_norm(put(grads), 0.1, only=("cell",))
    clipped, second = clip_norm(clipped, 0.2, but=("cell",))
    assert float(first) == pytest.approx(norm_of(grads, {"cell.W", "cell.b"}))
    assert float(second) == pytest.approx(norm_of(grads, {"embedding.E", "embeddings"}))
    assert float(global_norm(clipped)) == pytest.approx(np.hypot(0.1, 0.2))


@pytest.mark.parametrize("size", [1e20, 3e38, 1e-30])
def test_squares_beyond_single_precision(size: float, put: Any) -> None:
    """A finite gradient has a norm, and is clipped like any other."""
    huge = put({"W": np.array([[3, -4], [0, 0]], np.float32) * np.float32(size / 4)})
    clipped, norm = clip_norm(huge, size / 8)
    assert float(norm) == pytest.approx(5 * size / 4, rel=1e-6)
    assert_close(to_host(clipped["W"]), np.array([[3, -4], [0, 0]], np.float32) * np.float32(size / 40), 1e-5)


def test_a_norm_that_is_not_finite_is_returned(xp: Any) -> None:
    clipped, norm = clip_norm({"W": xp.asarray([1.0, np.nan])}, 1.0)
    assert np.isnan(float(norm))
    assert np.isnan(to_host(clipped["W"])).all()


def test_bad_settings(grads: Any) -> None:
    with pytest.raises(ValueError, match="limit is 0, expected a positive number"):
        Clip(0)
    for clip in (clip_norm, clip_value):
        with pytest.raises(ValueError, match="limit is 0, expected a positive number"):
            clip(grads, 0)
    with pytest.raises(ValueError, match="how is 'max', expected one of 'norm', 'value'"):
        Clip(1, "max")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"but names 'embed', but the leaves are embedding\.E, embeddings, cell\.W, cell\.b"
    ):
        Clip(1, but=("embed",))(grads)
    with pytest.raises(ValueError, match="no leaf is left to clip"):
        Clip(1, only=("cell",), but=("cell.W", "cell.b"))(grads)
