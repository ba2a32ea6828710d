"""What would fail on a GPU fails on the strict stand-in for CuPy, and minadv itself runs on it.

With `--backend=cupy` the first test shows that CuPy refuses what the stand-in refuses.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minadv import influence, masks
from minadv.adversary import find_adversary
from minadv.backend import choose_device, is_device, namespace, to_device
from minadv.base.trees import leaves
from minadv.distances import DISTANCES, by_name
from minadv.fast import reusing
from minadv.flip import flip
from minadv.regularizers import AdD, Regularizer
from minadv.searches import Exact, Greedy, Random, Relax, Reselect
from minadv.torch_layout import from_torch, to_torch
from minadv.training.clip import Clip
from minadv.training.optimizers import ASGD, SGD, Adam, RMSProp
from tests.support import cells, language_models, strict, texts
from tests.support.compare import assert_close
from tests.support.networks import network
from tests.test_regularizers import EVERY

HOST = np.arange(3.0)


def write_into(host: Any, x: Any) -> None:
    host[...] = x


def assign(x: Any, index: Any, value: Any) -> None:
    x[index] = value


MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    "a conversion that nobody asked for": lambda xp, x: np.asarray(x),
    "a list of arrays made a NumPy array": lambda xp, x: np.array([x, x]),
    "written into an array on the host": lambda xp, x: write_into(HOST.copy(), x),
    "host and device in a sum": lambda xp, x: x + HOST,
    "device and host in a sum": lambda xp, x: HOST + x,
    "host and device in a function": lambda xp, x: xp.where(x > 1, HOST, x),
    "host memory for a result": lambda xp, x: xp.add(x, 1, out=HOST.copy()),
    "an array on the host assigned": lambda xp, x: assign(x, ..., HOST),
    "a ufunc where": lambda xp, x: xp.divide(1, x, out=x, where=x > 0),
    "a sum where": lambda xp, x: x.sum(where=x > 0),
    "the first value of a maximum": lambda xp, x: xp.max(x, initial=0.0),
    "a maximum by its ufunc": lambda xp, x: xp.maximum.reduce(x),
    "a running maximum": lambda xp, x: xp.maximum.accumulate(x),
    "a running or": lambda xp, x: np.logical_or.accumulate(x > 1),
    "a sort that CuPy does not have": lambda xp, x: xp.argsort(x, kind="quicksort"),
    "an array of strings": lambda xp, x: xp.asarray(["a", "b"]),
    "a list in a ufunc": lambda xp, x: xp.maximum(x, [0.0, 1.0, 2.0]),
    "random numbers of a generator": lambda xp, x: xp.random.default_rng(0).permutation(3),
    "a function that CuPy does not have": lambda xp, x: xp.errstate(over="ignore"),
}
"""Lines that NumPy runs and CuPy refuses."""

SILENT: dict[str, Callable[[Any, Any], Any]] = {
    "an index that is too large": lambda xp, x: x[xp.asarray([0, 3])],
    "an index along an axis that is too large": lambda xp, x: xp.take_along_axis(x, xp.asarray([5]), axis=0),
    "a place assigned to that is not there": lambda xp, x: assign(x, xp.asarray([1, 7]), 1.0),
    "two values for one place": lambda xp, x: assign(x, xp.asarray([1, 1]), xp.asarray([3.0, 4.0])),
}
"""Lines that go wrong on CuPy without an error."""

WAITING: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "bool": lambda x: bool(x > 0),
    "get": lambda x: x.get(),
    "boolean index": lambda x: x[None][x[None] > 0],
    "nonzero": lambda x: x[None].nonzero(),
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Moves a tree to the stand-in, which stands for CuPy while a test runs."""
    monkeypatch.setitem(sys.modules, "cupy", strict.module)
    monkeypatch.setenv("MINADV_COMPILED", "0")  # it runs no kernels
    device = choose_device("gpu")
    assert device.xp is strict.module
    return lambda tree: to_device(tree, device)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_lines_that_cupy_refuses(mistake: str, xp: Any) -> None:
    there = strict.module if xp is np else xp
    x = there.asarray(HOST)
    with pytest.raises((TypeError, ValueError, NotImplementedError, AttributeError)):
        MISTAKES[mistake](there, x)


@pytest.mark.parametrize("mistake", [*MISTAKES, "two values for one place"])
def test_numpy_lets_them_pass(mistake: str) -> None:
    """Otherwise it would take no stand-in to find them."""
    (MISTAKES | SILENT)[mistake](np, HOST.copy())


@pytest.mark.parametrize("mistake", SILENT)
def test_lines_that_go_wrong_without_a_word(mistake: str) -> None:
    with pytest.raises((IndexError, ValueError), match=r"out of bounds|written to one place"):
        SILENT[mistake](strict.module, strict.module.asarray(HOST))


@pytest.mark.parametrize("what", WAITING)
def test_what_waits_for_the_device_is_counted(what: str) -> None:
    x = strict.module.asarray(1.0)
    with strict.counting() as waits:
        y = (x + 1) * x.sum()
        assert y.shape == ()
        assert not waits
        WAITING[what](x)
    assert waits[what] == 1


def test_memory_is_the_device_s_own() -> None:
    host = HOST.copy()
    x = strict.module.asarray(host)
    x += 1
    assert host.tolist() == [0, 1, 2]
    assert x.get().tolist() == [1, 2, 3]
    assert strict.module.asarray(x) is not x and strict.module.asarray(x)._host is x._host
    assert np.isnan(strict.module.empty(2).get()).all()


def both(gpu: Callable[[Any], Any], run: Callable[[Callable[[Any], Any]], Any]) -> None:
    """What is computed on the stand-in is on the stand-in, and is what NumPy computes, up to rounding."""
    here, there = run(lambda tree: tree), run(gpu)
    arrays = [leaf for _, leaf in leaves(there) if hasattr(leaf, "dtype")]
    assert arrays
    assert all(map(is_device, arrays))
    assert_close(there, here)


@pytest.mark.parametrize("padding", [None, cells.RAGGED], ids=["whole", "padded"])
@pytest.mark.parametrize("name", cells.CELLS)
def test_cells(name: str, padding: Any, gpu: Any) -> None:
    def run(put: Any) -> Any:
        problem = cells.make(name, np.random.default_rng(0), put, valid=padding)
        with strict.counting() as waits:
            found = problem.run()
        assert not waits
        return found

    both(gpu, run)


@pytest.mark.parametrize("distance", DISTANCES)
def test_distances(distance: str, gpu: Any) -> None:
    logits = np.random.default_rng(0).standard_normal((2, 5, 3))
    both(gpu, lambda put: by_name(distance)(*put(tuple(logits))))


@pytest.mark.parametrize("rule", ["strict", "paper", "authors"])
def test_maps_masks_and_flips(rule: Any, gpu: Any) -> None:
    def run(put: Any) -> Any:
        rng = np.random.default_rng(0)
        h, dhhat = put(tuple(rng.standard_normal((2, 6, 4, 8))))
        eps0 = put(np.ones((4, 8)))
        im = influence.influence_map(h, dhhat)
        eps = flip(eps0, im, eps0, 3, rule=rule)
        return im, eps, masks.scale(eps, "kept")

    both(gpu, run)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_torch_layout(cell: str, gpu: Any) -> None:
    def run(put: Any) -> Any:
        arrays = to_torch(cells.make(cell, np.random.default_rng(0), put).params)
        return from_torch(cell, arrays), from_torch(cell, {n: a for n, a in arrays.items() if "bias" not in n})

    both(gpu, run)


@pytest.mark.parametrize("search", [Greedy(K=2), Reselect(swaps=1), Relax(), Random(2), Exact()], ids=lambda s: s.name)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_searches(search: Any, cell: str, gpu: Any) -> None:
    def run(put: Any) -> Any:
        model, params, batch = network(np.random.default_rng(0), put, cell=cell, valid=cells.RAGGED)
        trace = find_adversary(
            reusing(model), params, batch, search=search, budgets=2, rng=np.random.default_rng(1), scale="kept"
        )
        return trace.eps, trace.d

    both(gpu, run)


def after_a_step(regularizer: Regularizer, net: Any, optimizer: Any, **options: Any) -> Any:
    """The term, and the weights after a step with the gradient clipped."""
    model, params, batch = net
    term = regularizer(model, params, batch, rng=np.random.default_rng(1), weight=0.5, **options)
    grads, norm = Clip(0.1)(term.grads)
    moved, _ = optimizer.step(params, grads, optimizer.init(params))
    return term.value, norm, moved


@pytest.mark.parametrize("name", EVERY)
def test_regularizers_and_optimizers(name: str, gpu: Any) -> None:
    kinds = (SGD(0.1, momentum=0.9, weight_decay=0.1), RMSProp(0.1), Adam(0.1), ASGD(0.1, interval=None))
    for optimizer in kinds:
        both(
            gpu,
            lambda put, by=optimizer: after_a_step(
                EVERY[name], network(np.random.default_rng(0), put, valid=cells.RAGGED), by, likelihood=1.0
            ),
        )


@pytest.mark.parametrize("kind", ["texts", "language model of texts", "language model"])
def test_words(kind: str, gpu: Any) -> None:
    def run(put: Any) -> Any:
        rng = np.random.default_rng(0)
        if kind == "texts":
            net: Any = texts.classifier(rng, put, valid=texts.FRONT)
        elif kind == "language model":
            made = language_models.language(rng, put, **language_models.DROPOUTS)
            net = made.model, made.params, made.batch
        else:
            net = texts.language_model(rng, put)
        plain = kind == "language model of texts"
        return after_a_step(EVERY["plain"] if plain else AdD(budgets=2), net, Adam(0.1), likelihood=1.0)

    both(gpu, run)


def test_no_kernel_is_run_on_it(gpu: Any) -> None:
    with pytest.raises(NotImplementedError, match="runs no kernels: set MINADV_COMPILED=0"):
        namespace(gpu(HOST)).ElementwiseKernel("T x", "T y", "y = x", "copy")
