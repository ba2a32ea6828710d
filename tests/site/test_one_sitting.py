"""docs/one_sitting.py computes what minadv computes: forward, gradients, map, flips, AdD; and it stands alone."""

import ast
import importlib.util
import re
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from minadv import distances, flip, influence, layers, rnn
from minadv.models import Batch, Classifier
from minadv.models.classifier import Params
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.training.optimizers import Adam

DOCS = Path(__file__).parents[2] / "docs"
T, B, I, H, C = 6, 5, 3, 7, 4


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_sitting", DOCS / "one_sitting.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


one = load()
MODEL = Classifier(n_in=I, n_hidden=H, n_classes=C, cell="rnn")


def network(seed: int) -> tuple[dict[str, Any], Any, Any, Any, np.random.Generator]:
    """Weights whose recurrent part is strong, a sequence, labels and a random mask."""
    rng = np.random.default_rng(seed)
    params = {name: 1.5 * value for name, value in one.init(rng, I, H, C).items()}
    params["b"], params["c"] = rng.standard_normal(H), rng.standard_normal(C)
    eps = (rng.random((B, H)) < 0.7).astype(float)
    return params, rng.standard_normal((T, B, I)), rng.integers(C, size=B), eps, rng


def of_minadv(params: dict[str, Any]) -> Params:
    cell = rnn.Params(params["W"], params["U"], params["b"])
    return Params((cell,), params["V"], params["c"])


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


def test_the_first_weights() -> None:
    ours = one.init(np.random.default_rng(3), I, H, C)
    theirs = MODEL.init(np.random.default_rng(3), dtype=np.float64)
    for name, value in (("W", theirs.cells[0].W), ("U", theirs.cells[0].U), ("V", theirs.V)):
        np.testing.assert_array_equal(ours[name], value)


@pytest.mark.parametrize("seed", range(3))
def test_forward_backward_and_influence_map(seed: int) -> None:
    params, x, y, eps, _ = network(seed)
    cell = of_minadv(params).cells[0]
    h, logits = one.forward(params, x, eps)
    theirs, _, cache = rnn.forward(cell, x, m=eps)
    close(h[1:], theirs)
    close(logits, layers.affine(theirs[-1], params["V"], params["c"]))

    nll, dlogits = one.cross_entropy(logits, y)
    for a, b in zip((nll, dlogits), layers.cross_entropy(logits, y), strict=True):
        close(a, b)
    dlast, dV, dc = layers.affine_backward(theirs[-1], params["V"], dlogits)
    back = rnn.backward(cell, cache, None, dstate=rnn.State(dlast))
    grads, dhhat = one.backward(params, x, h, eps, dlogits)
    assert back.params is not None and back.hhat is not None
    for name, value in {"W": back.params.W, "U": back.params.U, "b": back.params.b, "V": dV, "c": dc}.items():
        assert np.abs(value).max() > 1e-3
        close(grads[name], value)
    close(dhhat, back.hhat)
    close(one.influence_map(h, dhhat), influence.influence_map(cache.h[:-1], back.hhat))
    close(one.influence_map(h, dhhat), back.m)


def test_js_and_its_gradients() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 3, (2, 20, C))
    for ours, theirs in zip(one.js(a, b), distances.js(a, b), strict=True):
        close(ours, theirs)


def test_flip() -> None:
    """From the base mask and from others, with ties and with zeros in the map."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        budget = int(rng.integers(1, H))
        eps0 = (rng.random((B, H)) < 0.8).astype(float)
        eps = eps0.copy()
        for row in eps:
            units = rng.choice(H, int(rng.integers(budget + 1)), replace=False)
            row[units] = 1 - row[units]
        im = rng.integers(-3, 4, (B, H)).astype(float)
        np.testing.assert_array_equal(one.flip(eps, im, eps0, budget), flip.flip(eps, im, eps0, budget))


@pytest.mark.parametrize(("seed", "weight", "K"), [(0, 1.0, 1), (1, 0.5, 1), (2, 2.0, 2)])
def test_the_adversary_and_the_loss(seed: int, weight: float, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same random start: the same mask, the same value of AdD, the same gradients of the whole loss."""
    params, x, y, _, _ = network(seed)
    find = one.find_adversary
    monkeypatch.setattr(one, "find_adversary", lambda *arguments: find(*arguments, K=K))
    nll, d, grads = one.add_loss(params, x, y, weight, 3, np.random.default_rng(seed))
    _, logits0 = one.forward(params, x, np.ones((B, H)))
    eps = find(params, x, logits0, 3, np.random.default_rng(seed), K)

    regularizer = AdD(budgets=3, search=Greedy(K=K, keep="last"))
    term = regularizer(
        MODEL, of_minadv(params), Batch(x, y), rng=np.random.default_rng(seed), weight=weight, likelihood=1.0
    )
    assert term.trace is not None and term.nll is not None
    np.testing.assert_array_equal(eps, term.trace.eps["layer0"])
    close(d, term.value.mean())
    close(nll, term.nll.mean())
    assert d > 1e-4
    cell = term.grads.cells[0]
    for name, value in {"W": cell.W, "U": cell.U, "b": cell.b, "V": term.grads.V, "c": term.grads.b}.items():
        close(grads[name], value)


def test_without_a_regularizer() -> None:
    params, x, y, _, rng = network(4)
    nll, d, grads = one.add_loss(params, x, y, 0, 3, rng)
    term = AdD(budgets=3)(MODEL, of_minadv(params), Batch(x, y), rng=rng, weight=0.0, likelihood=1.0)
    assert d == 0 and term.nll is not None
    close(nll, term.nll.mean())
    close(grads["U"], term.grads.cells[0].U)


def test_adam() -> None:
    rng = np.random.default_rng(5)
    params, state = {"W": rng.standard_normal(4)}, {}
    optimizer = Adam(lr=0.003)
    theirs, kept = dict(params), optimizer.init(params)
    for _ in range(3):
        grads = {"W": rng.standard_normal(4)}
        params, state = one.adam(params, grads, state)
        theirs, kept = optimizer.step(theirs, grads, kept)
        close(params["W"], theirs["W"])


def test_a_mistake_is_seen() -> None:
    """The tolerance of these tests is not so wide that the map of a lost mask would pass."""
    params, x, y, eps, _ = network(0)
    h, logits = one.forward(params, x, eps)
    _, dlogits = one.cross_entropy(logits, y)
    _, dhhat = one.backward(params, x, h, eps, dlogits)
    _, lost = one.backward(params, x, h, np.ones_like(eps), dlogits)
    assert np.abs(one.influence_map(h, dhhat) - one.influence_map(h, lost)).max() > 1e-3


def test_the_digits_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="the file is compared with scikit-learn's copy")
    digits = datasets.load_digits()
    rows = np.column_stack([digits.target, digits.data]).astype(int)
    lines = ["".join(chr(ord("a") + value) for value in row) for row in rows]
    ours = [line for line in (DOCS / "digits.txt").read_text().splitlines() if not line.startswith("#")]
    assert ours == lines
    x, y = one.load_digits()
    np.testing.assert_array_equal(x.swapaxes(0, 1), digits.images / 16)
    np.testing.assert_array_equal(y, digits.target)
    assert (DOCS / "digits.txt").stat().st_size < 150_000


def test_it_stands_alone() -> None:
    """At most 200 lines, and nothing is imported but NumPy and the standard library."""
    source = (DOCS / "one_sitting.py").read_text()
    assert len(source.splitlines()) <= 200
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    assert names == {"numpy", "pathlib"}


def test_it_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(DOCS / "one_sitting.py"), run_name="__main__")
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("test error")]
    none, add = ([float(share) for share in re.findall(r"([\d.]+)%", line)] for line in told)
    assert none[0] < 10 and add[0] < 10
    assert add[2] < none[2], "under attack the network that was trained with AdD has fewer errors"
