"""The flip: `strict` by hand, `paper` against Algorithm 1 as printed, `authors` against what the released code does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minadv.backend import to_host
from minadv.flip import flip
from minadv.masks import hamming

TIED = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0])
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@st.composite
def problems(draw):
    """eps, im, eps0 and a budget; a map of a few whole numbers, so that ties abound."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 9)))
    eps, eps0 = (draw(arrays(float, shape, elements=st.sampled_from([0.0, 1.0]))) for _ in range(2))
    return eps, draw(arrays(float, shape, elements=TIED)), eps0, draw(st.integers(0, shape[1]))


def row_by_row(reference, eps, im, eps0, budget, **options):
    rows = zip(eps, im, eps0, strict=True)
    return np.array([reference(e.copy(), i, e0, budget, **options) for e, i, e0 in rows])


@every_dtype
def test_strict_by_hand(dtype, put):
    eps0 = np.ones((1, 6), dtype)
    eps = np.array([[1, 1, 0, 1, 0, 1]], dtype)  # two flips spent, on units 2 and 4
    im = np.array([[-3, -5, 4, 2, -6, -1]], dtype)  # gains 3, 5, 4, -2, -6, 1: in order 1, 2, 0, 5, then the negative
    expected = {
        2: [0, 1, 1, 1, 0, 1],  # no place for unit 1; unit 2 goes back, and unit 0 takes its place
        3: [0, 0, 1, 1, 0, 1],
        4: [0, 0, 1, 1, 0, 0],
    }
    for budget, result in expected.items():
        out = flip(put(eps), put(im), put(eps0), budget)
        assert out.dtype == dtype
        assert to_host(out)[0].tolist() == result


def test_strict_without_unflipping(put):
    eps, im = np.array([[1.0, 1, 0, 1]]), np.array([[-3.0, -2, 9, -1]])
    args = put(eps), put(im), put(np.ones((1, 4))), 2
    assert to_host(flip(*args))[0].tolist() == [0, 0, 1, 1]
    assert to_host(flip(*args, allow_unflip=False))[0].tolist() == [0, 1, 0, 1]


def algorithm_1(eps, im, eps0, budget, norm):
    """Algorithm 1 of the paper, line by line; `norm="l2"` is what is printed, "count" what the prose means."""
    H = eps.size
    gain = (1 - 2 * eps) * im
    i = sorted(range(H), key=lambda n: -gain[n])  # a stable sort: ties by lowest index
    adv = eps
    d = 1
    while size(eps0 - adv, norm) <= budget and d <= H:
        adv[i[d - 1]] = 1 - adv[i[d - 1]]
        d = d + 1
    return adv


def size(difference, norm):
    return np.linalg.norm(difference) if norm == "l2" else np.abs(difference).sum()


@pytest.mark.parametrize("norm", ["count", "l2"])
@given(problem=problems())
def test_paper_is_algorithm_1(put, norm, problem):
    eps, im, eps0, budget = problem
    out = flip(put(eps), put(im), put(eps0), budget, rule="paper", norm=norm)
    np.testing.assert_array_equal(to_host(out), row_by_row(algorithm_1, *problem, norm=norm))


@pytest.mark.parametrize(
    ("H", "budget", "norm", "flips"),
    [
        (100, 3, "count", 4),
        (1024, 40, "count", 41),
        (1150, 69, "count", 70),
        (100, 3, "l2", 10),
        (1024, 40, "l2", 1024),
    ],
)
def test_paper_overshoots(H, budget, norm, flips, rng, put):
    eps0, im = np.ones((2, H)), rng.standard_normal((2, H))
    out = flip(put(eps0), put(im), put(eps0), budget, rule="paper", norm=norm)
    assert to_host(hamming(out, put(eps0))).tolist() == [flips] * 2
    np.testing.assert_array_equal(to_host(out), row_by_row(algorithm_1, eps0, im, eps0, budget, norm=norm))


def test_paper_flips_units_of_negative_gain(put):
    eps0 = put(np.ones((1, 3)))
    out = flip(eps0, put(np.array([[2.0, 1.0, 3.0]])), eps0, 1, rule="paper")
    assert to_host(out)[0].tolist() == [0, 0, 1]


def released_code(eps, im, eps0, budget, variant):
    """Candidates are J * m < 0 with J <= 0 counted as -1; those strictly above the c-th largest value change."""
    H = eps.size
    m = [1 if e == 1 else -1 for e in eps]
    J = [1 if value > 0 else -1 for value in im]
    candidate = [J[i] * m[i] < 0 and (variant == "smnist" or m[i] == 1) for i in range(H)]
    value = [abs(im[i]) if candidate[i] else 0 for i in range(H)]
    c = budget + 1 if variant == "smnist" else budget
    padded = [*sorted(value, reverse=True), 0]  # the (H + 1)-th largest of H values is no value at all
    threshold = padded[c - 1] if c > 0 else np.inf
    return [1 - eps[i] if candidate[i] and value[i] > threshold else eps[i] for i in range(H)]


@pytest.mark.parametrize("variant", ["smnist", "text"])
@given(problem=problems())
def test_authors_is_the_released_code(put, variant, problem):
    eps, im, eps0, budget = problem
    out = flip(put(eps), put(im), put(eps0), budget, rule="authors", variant=variant)
    np.testing.assert_array_equal(to_host(out), row_by_row(released_code, *problem, variant=variant))


@pytest.mark.parametrize(("variant", "changes"), [("smnist", 3), ("text", 2)])
def test_authors_off_by_one(variant, changes, put):
    """A budget of 3 gives the image code 3 changes and the text code 2."""
    eps = put(np.ones((1, 9)))
    out = flip(eps, put(-np.arange(1.0, 10)[None]), eps, 3, rule="authors", variant=variant)
    assert to_host(out)[0].tolist() == [1] * (9 - changes) + [0] * changes


@pytest.mark.parametrize("variant", ["smnist", "text"])
def test_authors_loses_changes_to_ties(variant, put):
    eps = put(np.ones((1, 5)))
    tied = put(np.array([[-3.0, -2, -2, -2, 1]]))
    assert to_host(flip(eps, tied, eps, 3, rule="authors", variant=variant))[0].tolist() == [0, 1, 1, 1, 1]


def test_only_the_image_code_re_activates(put):
    eps, eps0 = put(np.array([[0.0, 1, 1]])), put(np.ones((1, 3)))
    im = put(np.array([[5.0, -4, 3]]))
    assert to_host(flip(eps, im, eps0, 2, rule="authors", variant="smnist"))[0].tolist() == [1, 0, 1]
    assert to_host(flip(eps, im, eps0, 2, rule="authors", variant="text"))[0].tolist() == [0, 0, 1]


@every_dtype
@pytest.mark.parametrize("values", [3, 10**6], ids=["ties", "hardly a tie"])
@pytest.mark.parametrize(
    ("reference", "options"),
    [
        (algorithm_1, {"norm": "count"}),
        (algorithm_1, {"norm": "l2"}),
        (released_code, {"variant": "smnist"}),
        (released_code, {"variant": "text"}),
    ],
    ids=["paper, count", "paper, l2", "authors, smnist", "authors, text"],
)
def test_both_array_modules_agree_on_a_large_batch(reference, options, values, dtype, rng, put):
    B, H, budget = 100, 37, 4
    eps, eps0 = rng.integers(0, 2, (2, B, H)).astype(dtype)
    eps = np.where(rng.random((B, H)) < 0.1, eps, eps0)
    im = rng.integers(-values, values + 1, (B, H)).astype(dtype)
    rule = "paper" if reference is algorithm_1 else "authors"
    out = flip(put(eps), put(im), put(eps0), budget, rule=rule, **options)
    np.testing.assert_array_equal(to_host(out), row_by_row(reference, eps, im, eps0, budget, **options))


@every_dtype
@pytest.mark.parametrize("rule", ["strict", "paper", "authors"])
def test_nan_raises_and_names_the_example(rule, dtype, put):
    eps0, im = put(np.ones((4, 3), dtype)), np.zeros((4, 3), dtype)
    im[2, 1] = im[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"im is NaN for example 2 \(and 2 of 4 in all\)"):
        flip(eps0, put(im), eps0, 1, rule=rule)


@pytest.mark.parametrize("rule", ["strict", "paper", "authors"])
def test_infinite_gains_come_first(rule, put):
    eps0 = put(np.ones((1, 4)))
    out = flip(eps0, put(np.array([[-1.0, -np.inf, np.inf, -2]])), eps0, 1, rule=rule)
    assert to_host(out)[0, 1] == 0
    assert to_host(out)[0, 2] == 1


def test_the_released_rule_with_a_budget_of_all_units_changes_every_candidate(put):
    """Kept units of negative and dropped ones of positive influence, however small; none where it is zero."""
    eps, im = np.array([[1.0, 1, 1, 0, 0, 0]]), np.array([[-0.1, 0.1, 0, -0.1, 0.1, 0]])
    out = flip(put(eps), put(im), put(np.ones((1, 6))), 6, rule="authors")
    assert to_host(out)[0].tolist() == [0, 1, 1, 0, 1, 0]


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"eps": 0.5 * ONES}, ValueError, r"eps is 0\.5 at \(0, 0\), expected a mask of zeros and ones"),
        ({"eps0": 2 * ONES}, ValueError, r"eps0 is 2\.0 at \(0, 0\), expected a mask of zeros and ones"),
        ({"eps": np.ones((2, 4))}, ValueError, r"eps has shape \(2, 4\), expected \(2, 3\) \(the shape of eps0\)"),
        (
            {"eps": np.ones((1, 3)), "rule": "authors"},
            ValueError,
            r"eps has shape \(1, 3\), expected \(2, 3\) \(the shape of eps0\)",
        ),
        ({"im": np.ones((3, 3))}, ValueError, r"im has shape \(3, 3\), expected \(2, 3\) \(the shape of eps0\)"),
        ({"eps0": np.ones(3)}, ValueError, r"eps0 has shape \(3,\), expected \(B, H\)"),
        ({"eps": ONES.astype(bool)}, TypeError, r"eps has dtype bool, expected float32 or float64"),
        ({"im": ONES.astype(int)}, TypeError, r"im has dtype int64, expected float32 or float64"),
        ({"budget": -1}, ValueError, r"budget is -1, expected a whole number of flips from 0 to H = 3"),
        ({"budget": 4}, ValueError, r"budget is 4, expected a whole number of flips from 0 to H = 3"),
        ({"budget": 1.5}, ValueError, r"budget is 1\.5, expected a whole number"),
        ({"budget": True}, ValueError, r"budget is True, expected a whole number"),
        ({"rule": "loose"}, ValueError, r"rule is 'loose', expected one of 'strict', 'paper', 'authors'"),
        ({"norm": "l1"}, ValueError, r"norm is 'l1', expected one of 'count', 'l2'"),
        ({"variant": "lm"}, ValueError, r"variant is 'lm', expected one of 'smnist', 'text'"),
        ({"eps": 0 * ONES}, ValueError, r"differs from eps0 in 3 units in example 0, which is beyond the budget of 1"),
    ],
)
def test_bad_input(changed, error, message, put):
    given = {"eps": ONES, "im": ONES, "eps0": ONES, "budget": 1, **changed}
    eps, im, eps0 = (put(given.pop(name)) for name in ("eps", "im", "eps0"))
    with pytest.raises(error, match=message):
        flip(eps, im, eps0, given.pop("budget"), **given)
