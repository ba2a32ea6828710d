"""Each optimizer against its formula in a loop over Python floats, and against PyTorch where the forms agree."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.training.optimizers import ASGD, SGD, Adam, Optimizer, RMSProp
from tests.support.compare import assert_close, assert_same_bits

STEPS = 8


@dataclass(frozen=True)
class Layer:
    W: Any
    b: Any = None


def draw(rng: np.random.Generator, dtype: Any = np.float64) -> Any:
    """A tree with a dict, dataclasses, a missing leaf and a scalar array."""
    array = lambda *shape: rng.standard_normal(shape).astype(dtype)  # noqa: E731
    return {"cell": Layer(array(3, 2), array(2)), "head": Layer(array(2, 4)), "gain": array()}


def run(opt: Optimizer, params: Any, gradients: list[Any], scales: list[float]) -> tuple[list[Any], Any]:
    state, seen = opt.init(params), []
    for grads, scale in zip(gradients, scales, strict=True):
        params, state = opt.step(params, grads, state, lr_scale=scale)
        seen.append(params)
    return seen, state


def sgd(p: float, gs: list[float], scales: list[float]) -> float:
    v = 0.0
    for g, scale in zip(gs, scales, strict=True):
        v = 0.9 * v + g + 0.01 * p
        p = p - 0.1 * scale * v
    return p


def plain_sgd(p: float, gs: list[float], scales: list[float]) -> float:
    for g, scale in zip(gs, scales, strict=True):
        p = p - 0.1 * scale * g
    return p


def rmsprop(p: float, gs: list[float], scales: list[float]) -> float:
    s = 1.0
    for g, scale in zip(gs, scales, strict=True):
        s = 0.5 * s + 0.5 * g**2
        p = p - 0.1 * scale * g / math.sqrt(s + 0.3)
    return p


def adam(p: float, gs: list[float], scales: list[float]) -> float:
    m = s = 0.0
    for t, (g, scale) in enumerate(zip(gs, scales, strict=True), 1):
        m = 0.8 * m + 0.2 * g
        s = 0.95 * s + 0.05 * g**2
        p = p - 0.1 * scale * (m / (1 - 0.8**t)) / (math.sqrt(s / (1 - 0.95**t)) + 0.2)
    return p


def asgd(p: float, gs: list[float], scales: list[float]) -> float:
    for g, scale in zip(gs, scales, strict=True):
        p = p - 0.1 * scale * (g + 0.01 * p)
    return p


FORMULAS = [
    pytest.param(SGD(0.1, momentum=0.9, weight_decay=0.01), sgd, id="sgd"),
    pytest.param(SGD(0.1), plain_sgd, id="plain-sgd"),
    pytest.param(RMSProp(0.1, decay=0.5, tiny=0.3), rmsprop, id="rmsprop"),
    pytest.param(Adam(0.1, beta1=0.8, beta2=0.95, tiny=0.2), adam, id="adam"),
    pytest.param(ASGD(0.1, weight_decay=0.01), asgd, id="asgd"),
]


@pytest.mark.parametrize(("opt", "formula"), FORMULAS)
def test_steps_are_those_of_the_formula(opt: Optimizer, formula: Callable[..., float], rng: Any, put: Any) -> None:
    params, gradients = draw(rng), [draw(rng) for _ in range(STEPS)]
    scales = [1 / (n + 1) for n in range(STEPS)]
    seen, _ = run(opt, put(params), put(gradients), scales)
    names = dict(leaves(params))
    for name, value in dict(leaves(to_host(seen[-1]))).items():
        columns = [dict(leaves(g))[name] for g in gradients]
        for index in np.ndindex(value.shape):
            expected = formula(float(names[name][index]), [float(c[index]) for c in columns], scales)
            assert value[index] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("opt", "formula"), FORMULAS)
def test_nothing_is_changed_in_place_and_dtypes_stay(opt: Optimizer, formula: Any, rng: Any, put: Any) -> None:
    params, grads = put(draw(rng, np.float32)), put(draw(rng, np.float32))
    state = opt.init(params)
    once, state = opt.step(params, grads, state)
    before = tree_map(lambda a: a.copy() if hasattr(a, "copy") else a, (once, grads, state))
    twice, later = opt.step(once, grads, state, lr_scale=np.float64(0.5))
    assert_same_bits((once, grads, state), before)
    for name, leaf in leaves((twice, later)):
        assert not hasattr(leaf, "dtype") or leaf.dtype == np.float32, name
    assert [name for name, _ in leaves(later)] == [name for name, _ in leaves(opt.init(params))]


@pytest.mark.parametrize(("opt", "formula"), FORMULAS)
def test_where_it_is_not_told_otherwise_the_rate_is_that_of_the_optimizer(opt: Any, formula: Any, rng: Any) -> None:
    params, grads = draw(rng), draw(rng)
    state = opt.init(params)
    assert_same_bits(opt.step(params, grads, state)[0], opt.step(params, grads, state, lr_scale=1.0)[0])


def test_what_is_not_told() -> None:
    assert SGD(0.1) == SGD(0.1, momentum=0.0, weight_decay=0.0)
    assert RMSProp(0.1) == RMSProp(0.1, decay=0.5, tiny=1e-10)
    assert Adam(0.1) == Adam(0.1, beta1=0.9, beta2=0.999, tiny=1e-8)
    assert ASGD(0.1) == ASGD(0.1, weight_decay=0.0, interval=5)


def test_nothing_is_remembered_that_is_not_needed() -> None:
    params = {"W": np.ones(3)}
    assert SGD(0.1).init(params).velocity is None
    assert ASGD(0.1, interval=None).init(params).recent == ()


def test_rmsprop_begins_as_gradient_descent(rng: Any, put: Any) -> None:
    params, grads = draw(rng), tree_map(lambda a: 1e-6 * a, draw(rng))
    opt = RMSProp(1e-3)
    moved, _ = opt.step(put(params), put(grads), opt.init(put(params)))
    assert_close(moved, tree_map(lambda p, g: p - 1e-3 * g / math.sqrt(0.5), params, grads), 1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adam", "asgd"])
def test_against_torch(name: str, rng: Any, xp: Any) -> None:
    if xp is not np:
        pytest.skip("one backend is enough")
    torch = pytest.importorskip("torch")
    start, gradients = rng.standard_normal(5), [rng.standard_normal(5) for _ in range(STEPS)]
    p = torch.tensor(start, requires_grad=True)
    if name == "sgd":
        mine: Optimizer = SGD(0.1, momentum=0.9, weight_decay=0.01)
        theirs = torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01)
    elif name == "rmsprop":  # the forms agree without the guard, from a mean square of 1
        mine = RMSProp(0.1, decay=0.5, tiny=0)
        theirs = torch.optim.RMSprop([p], lr=0.1, alpha=0.5, eps=0)
        theirs.state[p] = {"step": torch.tensor(0.0), "square_avg": torch.ones_like(p)}
    elif name == "adam":
        mine, theirs = Adam(0.1), torch.optim.Adam([p], lr=0.1)
    else:
        mine = ASGD(0.125, weight_decay=0.01, interval=None)  # PyTorch keeps this rate in float32: one that fits
        theirs = torch.optim.ASGD([p], lr=0.125, weight_decay=0.01, lambd=0, t0=0)
    seen, state = run(mine, {"p": start}, [{"p": g} for g in gradients], [1.0] * STEPS)
    for g, ours in zip(gradients, seen, strict=True):
        p.grad = torch.tensor(g)
        theirs.step()
        np.testing.assert_allclose(ours["p"], p.detach().numpy(), rtol=1e-12, atol=1e-14)
    if name == "asgd":  # PyTorch's average leaves the first iterate out, and its share of a new one is a float32
        np.testing.assert_allclose(theirs.state[p]["ax"].numpy(), np.mean([s["p"] for s in seen[1:]], axis=0), 1e-7)
        np.testing.assert_allclose(state.average["p"], np.mean([s["p"] for s in seen], axis=0), 1e-12)


@given(
    losses=st.lists(st.floats(0, 10), max_size=30) | st.lists(st.integers(0, 4).map(float), max_size=30),
    interval=st.integers(1, 6),
)
def test_trigger_is_the_rule_of_awd_lstm(losses: list[float], interval: int) -> None:
    opt = ASGD(1.0, interval=interval)
    state, history, started = opt.init({"p": np.zeros(1)}), [], False
    for loss in losses:
        started = started or (len(history) > interval and loss > min(history[:-interval]))
        history.append(loss)
        state = opt.observe(state, loss)
        assert state.started == started


def test_average_starts_at_the_trigger_and_is_the_mean_from_there(rng: Any, put: Any) -> None:
    opt = ASGD(0.1, interval=2)
    params = put(draw(rng))
    state, since = opt.init(params), []
    for n, loss in enumerate([5.0, 4.0, 3.0, 4.5, 6.0, 2.0, 1.0]):  # 6 > 5 and 4, two evaluations before
        params, state = opt.step(params, put(draw(rng)), state)
        if n > 4:
            since.append(to_host(params))
            mean = tree_map(lambda *p: sum(p) / len(p), *since)
            assert_close(state.average, mean, 1e-13)
            assert state.averaged == len(since)
        else:
            assert_same_bits(state.average, params)
        state = opt.observe(state, loss)
        assert state.started == (n >= 4)


def test_averaging_brings_noisy_descent_closer_to_the_minimum(rng: Any, put: Any) -> None:
    opt = ASGD(0.5, interval=None)
    params = put({"p": np.zeros(100)})
    state = opt.init(params)
    for _ in range(200):
        params, state = opt.step(params, tree_map(lambda p: p + put(rng.standard_normal(100)), params), state)
    distance = lambda tree: float(np.linalg.norm(to_host(tree)["p"]))  # noqa: E731
    assert distance(state.average) < distance(params) / 3


def test_settings_at_the_edge_are_fine() -> None:
    """Zero is no momentum, no decay, no guard: each a method of its own, and none an error."""
    SGD(0.1, momentum=0.0, weight_decay=0.0)
    RMSProp(0.1, decay=0.0, tiny=0.0)
    Adam(0.1, beta1=0.0, beta2=0.0, tiny=0.0)
    ASGD(0.1, weight_decay=0.0, interval=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(0), "lr is 0, expected a positive number"),
        (lambda: SGD(math.nan), "lr is nan"),
        (lambda: SGD(1, momentum=1), r"momentum is 1, expected a number in \[0, 1\)"),
        (lambda: SGD(1, weight_decay=-1), "weight_decay is -1, expected zero or a positive number"),
        (lambda: RMSProp(1, decay=2), "decay is 2"),
        (lambda: Adam(1, beta2=1), "beta2 is 1"),
        (lambda: Adam(1, tiny=-1e-8), "tiny is -1e-08"),
        (lambda: ASGD(1, interval=0), "interval is 0, expected a whole number of at least 1, or None"),
    ],
)
def test_bad_settings(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("opt", [SGD(0.1), RMSProp(0.1), Adam(0.1), ASGD(0.1)], ids=lambda opt: type(opt).__name__)
def test_gradients_that_do_not_fit(opt: Optimizer, xp: Any) -> None:
    params = {"W": xp.zeros((2, 3)), "b": xp.zeros(3)}
    with pytest.raises(ValueError, match=r"missing \['b'\], not among the parameters \['c'\]"):
        opt.step(params, {"W": xp.zeros((2, 3)), "c": xp.zeros(3)}, opt.init(params))
    with pytest.raises(ValueError, match=r"grads.W has shape \(3,\), expected \(2, 3\)"):
        opt.step(params, {"W": xp.zeros(3), "b": xp.zeros(3)}, opt.init(params))
    with pytest.raises(TypeError, match=r"grads.b has dtype float32, expected float64"):
        opt.step(params, {"W": xp.zeros((2, 3)), "b": xp.zeros(3, np.float32)}, opt.init(params))
