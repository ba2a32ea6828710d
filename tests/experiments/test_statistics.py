"""Paired differences, their intervals and Holm's correction, against SciPy and cases worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from experiments.parts.statistics import holm, paired


def by_seed(values: object) -> dict[int, float]:
    return dict(enumerate(np.asarray(values, dtype=float).tolist()))


def test_a_difference_is_that_of_scipy(rng: np.random.Generator) -> None:
    one, other = rng.standard_normal(12) + 0.8, rng.standard_normal(12)
    found = paired(by_seed(one), by_seed(other))
    assert found.mean == pytest.approx((one - other).mean())
    assert found.p == pytest.approx(stats.ttest_rel(one, other).pvalue)
    expected = stats.bootstrap((one - other,), np.mean, n_resamples=20_000, method="percentile", rng=rng)
    low, high = expected.confidence_interval
    assert found.low == pytest.approx(low, abs=0.05)
    assert found.high == pytest.approx(high, abs=0.05)
    assert found.n == 12


def test_what_all_seeds_share_does_not_widen_the_interval(rng: np.random.Generator) -> None:
    shared = 100 * rng.standard_normal(10)
    found = paired(by_seed(shared + 1), by_seed(shared))
    assert (found.low, found.high) == pytest.approx((1, 1))
    assert str(found) == "+1.00 [+1.00, +1.00]"


def test_seeds_are_matched_by_their_number() -> None:
    found = paired({1: 5.0, 2: 7.0}, {2: 6.0, 1: 4.0})
    assert found.mean == 1


@pytest.mark.parametrize("other", [{1: 1.0}, {1: 1.0, 3: 2.0}])
def test_other_seeds_are_refused(other: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"seeds are \[1, 2\] and .*, expected the same, two at least"):
        paired({1: 1.0, 2: 2.0}, other)


def test_equal_methods_do_not_differ() -> None:
    same = by_seed([1, 2, 3])
    assert paired(same, same).p == 1
    assert paired(by_seed([2, 3, 4]), same).p < 1e-6


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([0.02]) == [0.02]
    assert holm([0.04, 0.01]) == pytest.approx([0.04, 0.02])


def test_holm_never_reorders_and_never_exceeds_bonferroni(rng: np.random.Generator) -> None:
    p = rng.random(9) / 5
    found = np.array(holm(p.tolist()))
    assert (np.diff(found[np.argsort(p)]) >= 0).all()
    assert (found <= np.minimum(9 * p, 1) + 1e-15).all()
    assert (found >= p).all()
