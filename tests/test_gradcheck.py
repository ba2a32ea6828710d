"""The checker is checked: it passes what is right and fails on errors as small or as crude as bugs really are."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from minadv import gradcheck, layers
from minadv.base.trees import tree_map
from tests.support.cells import make


@dataclass(frozen=True)
class Weights:
    W: Any
    b: Any


def forward(weights, x):
    return layers.affine(x, weights.W, weights.b)


def backward(args, dy):
    dx, dW, db = layers.affine_backward(args["x"], args["weights"].W, dy)
    return {"weights": Weights(dW, db), "x": dx}


@pytest.fixture
def args(rng, put):
    weights = Weights(rng.standard_normal((3, 2)), rng.standard_normal(2))
    return put({"weights": weights, "x": rng.standard_normal((4, 3))})


def test_a_right_backward_passes(args, rng):
    report = gradcheck.check(forward, backward, args, rng=rng)
    report.raise_if_failed()
    assert report.passed
    assert [row.name for row in report.rows] == ["weights.W", "weights.b", "x"]
    assert {row.how for row in report.rows} == {"every entry"}


@pytest.mark.parametrize("elementwise", [64, 0], ids=["every entry", "directions"])
@pytest.mark.parametrize("factor", [1.001, 0.999, 0.0, -1.0])
def test_a_wrong_factor_fails(args, rng, factor, elementwise):
    def wrong(args, dy):
        return tree_map(lambda g: factor * g, backward(args, dy))

    report = gradcheck.check(forward, wrong, args, rng=rng, elementwise=elementwise)
    assert not any(row.passed for row in report.rows), str(report)
    with pytest.raises(gradcheck.GradientError, match="FAILED"):
        report.raise_if_failed()


def test_one_wrong_entry_is_found_and_named(args, rng):
    def wrong(args, dy):
        grads = backward(args, dy)
        dW = grads["weights"].W.copy()
        dW[2, 1] += 1e-3
        return {**grads, "weights": replace(grads["weights"], W=dW)}

    report = gradcheck.check(forward, wrong, args, rng=rng)
    row = report["weights.W"]
    assert (row.passed, row.worst) == (False, "[2, 1]")
    assert row.error == pytest.approx(1e-3, rel=1e-5)
    assert report["weights.b"].passed
    assert report["x"].passed
    assert "FAIL weights.W" in str(report)
    assert "ok   x" in str(report)


def test_a_backward_that_forgets_the_mask_fails(rng, put):
    problem = make("rnn", rng, put)

    def run(x):
        return problem.forward(x=x)[0]

    def forgetful(args, dh):
        _, _, cache = problem.forward(x=args["x"])
        return {"x": problem.cell.backward(problem.params, replace(cache, m=0 * cache.m + 1), dh).x}

    assert not gradcheck.check(run, forgetful, {"x": problem.args["x"]}, rng=rng).passed


def test_an_error_that_a_sum_would_hide_is_seen(rng, xp, put):
    """The gradient of sum(softmax) is zero, so only a random cotangent sees that this backward is."""

    def softmax(a):
        return xp.exp(layers.log_softmax(a))

    report = gradcheck.check(softmax, lambda args, d: {"a": 0 * args["a"]}, {"a": put(rng.standard_normal(4))}, rng=rng)
    assert not report.passed


def test_nan_fails(args, rng):
    report = gradcheck.check(forward, lambda args, dy: {"x": np.nan * args["x"]}, args, rng=rng)
    assert not report.passed


def test_a_large_array_is_checked_along_directions(rng, put):
    args = {"x": put(rng.standard_normal((30, 40)))}

    def square(x):
        return x**2

    right = gradcheck.check(square, lambda args, dy: {"x": 2 * args["x"] * dy}, args, rng=rng, directions=4)
    assert (right.passed, right["x"].how) == (True, "4 random directions")
    wrong = gradcheck.check(square, lambda args, dy: {"x": 2.002 * args["x"] * dy}, args, rng=rng)
    assert not wrong.passed
    assert wrong["x"].worst.startswith("direction ")


def only_x(args, dy):
    return {"x": backward(args, dy)["x"]}


def test_what_backward_leaves_out_is_listed_and_fails(args, rng):
    report = gradcheck.check(forward, only_x, args, rng=rng)
    assert [row.name for row in report.rows] == ["x"]
    assert report["x"].passed
    assert report.unchecked == ("weights",)
    assert not report.passed
    assert "FAIL weights  unchecked, backward returned no gradient for it: return one, or name it, left_out=" in str(
        report
    )
    with pytest.raises(gradcheck.GradientError, match="FAILED"):
        report.raise_if_failed()


def test_what_is_left_out_on_purpose_is_named(args, rng):
    report = gradcheck.check(forward, only_x, args, rng=rng, left_out=("weights",))
    assert report.passed
    assert report.unchecked == ("weights",)
    assert str(report).endswith("  --   weights  unchecked, as asked")
    assert gradcheck.check(forward, backward, args, rng=rng, left_out=("weights",)).unchecked == ()
    for bad in ("weights", ("W",)):
        with pytest.raises(ValueError, match=r"left_out is .*, expected a tuple of arguments among \['weights', 'x'\]"):
            gradcheck.check(forward, only_x, args, rng=rng, left_out=bad)


def test_whole_numbers_have_no_gradient(rng, put):
    def pick(x, n):
        return x[n]

    def pick_backward(args, dy):
        dx = 0 * args["x"]
        dx[args["n"]] = dy
        return {"x": dx}

    args = {"x": put(rng.standard_normal(5)), "n": put(np.array([3, 1]))}
    assert gradcheck.check(pick, pick_backward, args, rng=rng).unchecked == ()


def test_a_python_float_is_an_argument_too(rng, put):
    """Left out by backward, it is listed and fails; its gradient, a number or an array of shape (), is checked."""

    def line(a, x):
        return a * x

    args = {"a": 2.0, "x": put(rng.standard_normal(3))}
    report = gradcheck.check(line, lambda given, dy: {"x": given["a"] * dy}, args, rng=rng)
    assert (report.passed, report.unchecked) == (False, ("a",))
    assert gradcheck.check(line, lambda given, dy: {"x": given["a"] * dy}, args, rng=rng, left_out=("a",))

    def both(of, factor):
        return lambda given, dy: {"x": given["a"] * dy, "a": of(factor * (given["x"] * dy).sum())}

    for of in (float, lambda a: a):
        assert gradcheck.check(line, both(of, 1.0), args, rng=rng)["a"].passed
        assert not gradcheck.check(line, both(of, 1.001), args, rng=rng)["a"].passed
    assert type(args["a"]) is float


def test_a_report_is_true_if_it_passed(args, rng):
    assert gradcheck.check(forward, backward, args, rng=rng)
    wrong = gradcheck.check(forward, lambda args, dy: {**backward(args, dy), "x": 0 * args["x"]}, args, rng=rng)
    assert not wrong
    assert not gradcheck.check(forward, only_x, args, rng=rng)


@pytest.mark.parametrize(
    "seed", [0, np.int64(3), np.random, np.random.RandomState(0)], ids=["int", "NumPy", "module", "old"]
)
def test_a_seed_is_no_generator(args, seed):
    with pytest.raises(
        TypeError, match=r"rng is .*, expected a numpy.random.Generator: give rng=numpy.random.default_"
    ):
        gradcheck.check(forward, backward, args, rng=seed)


def test_outputs_may_be_trees(rng, put):
    def pair(x):
        return {"square": x**2, "cube": (x**3,)}

    def pair_backward(args, d):
        x = args["x"]
        return {"x": 2 * x * d["square"] + 3 * x**2 * d["cube"][0]}

    gradcheck.check(pair, pair_backward, {"x": put(rng.standard_normal(5))}, rng=rng).raise_if_failed()


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda g: {**g, "x": g["x"].T}, ValueError, r"gradient of x has shape \(3, 4\), expected \(4, 3\)"),
        (lambda g: {**g, "weights": replace(g["weights"], b=None)}, ValueError, r"no gradient for weights\.b"),
        (lambda g: {**g, "y": g["x"]}, ValueError, r"gradients for \['y'\], but the arguments are \['weights', 'x'\]"),
    ],
    ids=["shape", "missing", "unknown"],
)
def test_gradients_that_do_not_fit(args, rng, returned, error, message):
    with pytest.raises(error, match=message):
        gradcheck.check(forward, lambda args, dy: returned(backward(args, dy)), args, rng=rng)


def test_single_precision_is_refused(args, rng):
    single = {**args, "x": args["x"].astype(np.float32)}
    with pytest.raises(TypeError, match="x has dtype float32, expected float64 for finite differences"):
        gradcheck.check(forward, backward, single, rng=rng)


def test_a_backward_that_returns_nothing_is_refused(rng):
    with pytest.raises(ValueError, match="no gradients at all"):
        gradcheck.check(lambda x: x, lambda args, dy: {}, {"x": np.ones(2)}, rng=rng)


def test_an_empty_argument_has_nothing_to_fail(put, rng):
    report = gradcheck.check(
        lambda x, b: x.sum() + b,
        lambda args, dy: {"x": 0 * args["x"], "b": dy},
        put({"x": np.zeros(0), "b": np.ones(())}),
        rng=rng,
    )
    assert report.passed
    row = report["x"]
    assert (row.error, row.analytic, row.numeric, row.worst) == (0.0, 0.0, 0.0, "[]")


def test_as_many_entries_as_are_checked_one_by_one_still_are(put, rng):
    def how(n):
        args = put({"x": rng.standard_normal(n)})
        return gradcheck.check(lambda x: x * x, lambda a, dy: {"x": 2 * a["x"] * dy}, args, rng=rng, elementwise=5)[
            "x"
        ].how

    assert (how(5), how(6)) == ("every entry", "3 random directions")


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_tolerance_grows_with_the_gradient_and_has_a_floor(size, put, rng):
    """The difference that is allowed is tol times the largest of both gradients and the floor."""
    args = put({"x": np.array([1.0])})
    allowed = 1e-3 * max(size, 1e-3)

    def wrong_by(share):
        return gradcheck.check(
            lambda x: size * x, lambda a, dy: {"x": (size + share * allowed) * dy}, args, rng=rng, tol=1e-3
        ).passed

    rng = np.random.default_rng(2)
    assert wrong_by(0.2)
    assert not wrong_by(30.0)


def test_a_gradient_of_zeros_passes_without_a_floor(rng, put):
    report = gradcheck.check(lambda x: 0 * x, lambda _, dy: {"x": 0 * dy}, {"x": put(np.ones(3))}, rng=rng, floor=0.0)
    assert report.passed and report["x"].analytic == 0


def test_a_report_of_nothing_can_be_printed():
    assert str(gradcheck.Report((), 1e-6)) == "gradient check, tolerance 1e-06: passed"
