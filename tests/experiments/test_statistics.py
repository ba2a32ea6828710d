"""Paired differences, their intervals and Holm's correction, against SciPy and cases worked out by hand."""

import numpy as np
import pytest
from scipy import stats

from experiments.parts.statistics import coverage, detectable, holm, interval, paired


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


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e5])
def test_equal_differences_have_the_p_of_their_signs(scale: float) -> None:
    """Rounding is no spread, and SciPy is not asked for a t-test that has none."""
    one = scale * np.array([1.1, 2.2, 3.3, 4.7, 5.9])
    assert paired(by_seed(one + scale * 0.3), by_seed(one)).p == 2**-4
    assert paired(by_seed(one * 3 / 3 * 1.1 / 1.1), by_seed(one)).p == 1
    almost = one + scale * np.array([0.3, 0.3, 0.3, 0.3, 0.3 + 1e-9])
    assert 0 < paired(by_seed(almost), by_seed(one)).p < 1e-20


def test_the_interval_of_few_seeds_covers_less_than_it_says(rng: np.random.Generator) -> None:
    assert 0.7 < coverage(3) < 0.82 < coverage(5) < coverage(10) < 0.93
    for n in (5, 10):  # for many draws the interval is nearly normal, with the spread of n where that of n - 1 is due
        assert coverage(n) == pytest.approx(2 * stats.t.cdf(1.96 * (1 - 1 / n) ** 0.5, n - 1) - 1, abs=0.03)
    assert coverage(100, 1000, 1000) == pytest.approx(0.95, abs=0.02)
    d = rng.standard_normal((4, 6))
    for one, ends in zip(d, interval(d).T, strict=True):
        assert ends == pytest.approx(interval(one))


def test_what_the_corrected_test_could_tell(rng: np.random.Generator) -> None:
    """Differences just over the limit are told by Holm's method, those just under it are not."""
    n, m = 6, 9
    d = rng.standard_normal(n)
    d = (d - d.mean()) / d.std(ddof=1)
    for others, limit in zip((1.0, 0.0), detectable(n, m), strict=True):
        over, under = (paired(by_seed(d + limit + step), by_seed(0 * d)).p for step in (1e-6, -1e-6))
        assert holm([over, *[others] * (m - 1)])[0] < 0.05 < holm([under, *[others] * (m - 1)])[0]


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
