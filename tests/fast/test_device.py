"""Kernels that stand for readable functions on a device, and what a training step asks of the device."""

import linecache
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minadv
from minadv import distances, influence, layers, masks
from minadv.backend import to_host
from minadv.base import kernels, readings
from minadv.base.errors import NotFiniteError
from minadv.data.images import Images, Split
from minadv.fast.elementwise import flush_vanished
from minadv.flip import flip
from minadv.models.classifier import Classifier
from minadv.models.language.model import LanguageModel
from minadv.regularizers import VD, AdD
from minadv.tasks.images.task import Classify
from minadv.tasks.language.task import LanguageTask
from minadv.training.clip import Clip, global_norm
from minadv.training.finite import TrainingError
from minadv.training.loop import Recipe, advance, start
from minadv.training.optimizers import ASGD, SGD, Adam, RMSProp
from minadv.training.parallel.workers import OneWorker
from minadv.training.update import updated
from tests.support.compare import assert_close, assert_same_bits
from tests.support.language_models import DROPOUTS
from tests.support.language_runs import corpus

pytestmark = pytest.mark.usefixtures("on_cupy")
PRECISIONS = pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 3e-6), (np.float64, 1e-13)])


@pytest.fixture(name="on_cupy")
def _on_cupy(xp: Any, kernels: None) -> None:
    if xp is np:
        pytest.skip("kernels run on CuPy arrays: pytest --backend=cupy")


def counting() -> Any:
    """The counters of the emulated device; a real one has none."""
    counters = pytest.importorskip("counters", reason="launches are counted on an emulated device only")
    return counters.counting(under=str(Path(minadv.__file__).parent))


def launches(seen: Any) -> int:
    return int(seen.totals["kernel"] + seen.totals["blas"])


def text_of(function: Any) -> Any:
    """The readable function without its kernel."""
    return function.__wrapped__


def by_columns(a: Any) -> Any:
    """The same matrix in Fortran's order of memory."""
    turned = a.T.copy().T
    assert turned.flags.f_contiguous
    return turned


def read_later(function: Any, *args: Any) -> None:
    """Call a function, which raises nothing, and read the device."""
    called = False
    try:
        with readings.at_once() as later:
            function(*args)
            called = True
            later.numbers()
    finally:
        assert called


def test_every_kernel_is_that_of_a_decorated_function(put: Any) -> None:
    distances.js(put(np.zeros((1, 2))), put(np.zeros((1, 2))))
    names = kernels.provided()
    assert len(names) >= 12
    for name in names:
        module, _, function = name.rpartition(".")
        found = getattr(__import__(module, fromlist=[function]), function)
        assert hasattr(found, "__wrapped__"), name


@PRECISIONS
@pytest.mark.parametrize("name", distances.DISTANCES)
def test_distances(name: str, dtype: Any, tol: float, rng: Any, put: Any) -> None:
    """Rows of few and of many classes, near and far, sure and not; equal rows have exactly nothing."""
    distance = distances.DISTANCES[name]
    for C, size in ((1, 1.0), (2, 4.0), (7, 0.01), (10, 40.0), (150, 3.0)):
        a, b = (put((size * rng.standard_normal((2, 3, C))).astype(dtype)) for _ in range(2))
        with counting() as seen:
            found = distance(a, b)
        assert launches(seen) == 1
        for mine, theirs in zip(found, text_of(distance)(a, b), strict=True):
            assert mine.dtype == dtype
            scale = max(1.0, float(abs(theirs).max())) if name == "logit2" else 1.0
            assert_close(mine / scale, theirs / scale, tol)
    same = distance(a, a)
    assert all(float(abs(one).max()) <= 1e-16 for one in same)
    a[0, 1, 0] = np.nan
    assert np.isnan(to_host(distance(a, b)[0])).tolist() == [[False, True, False], [False] * 3]


@PRECISIONS
@pytest.mark.parametrize("integers", [np.int64, np.int32])
def test_cross_entropy(integers: Any, dtype: Any, tol: float, rng: Any, put: Any) -> None:
    for C in (2, 10, 200):
        logits = put((5 * rng.standard_normal((3, 4, C))).astype(dtype))
        targets = put(rng.integers(0, C, (3, 4)).astype(integers))
        found, expected = layers.cross_entropy(logits, targets), text_of(layers.cross_entropy)(logits, targets)
        assert_close(found, expected, tol)
        with counting() as seen:
            unchecked = layers.cross_entropy(logits, targets, check=False)
        assert (launches(seen), seen.totals["sync"]) == (1, 0)
        assert_same_bits(unchecked, found)
    targets[1, 2] = C
    with pytest.raises(ValueError, match="targets holds 200, expected integers from 0 to 199"):
        layers.cross_entropy(logits, targets)
    with pytest.raises(ValueError, match="targets holds 200"):
        read_later(layers.cross_entropy, logits, targets)


@PRECISIONS
@pytest.mark.parametrize("integers", [np.int64, np.int32, np.uint8])
def test_embedding_gradients(integers: Any, dtype: Any, tol: float, rng: Any, put: Any) -> None:
    """One word and many, short and long runs, few columns and several blocks of them; the host's order of sums."""
    sizes = *((1, (n,), 3) for n in (1, 2, 9, 10, 17)), (7, (4, 5), 1), (200, (3, 2, 11), 130), (3, (700,), 5)
    for V, shape, D in sizes:
        E, tokens = put(np.ones((V, D), dtype)), rng.integers(0, V, shape).astype(integers)
        dy = rng.standard_normal((*shape, D)).astype(dtype)
        given = E, put(tokens), put(dy)
        layers.embedding_backward(*given)
        with counting() as seen:
            found = layers.embedding_backward(*given)
        assert launches(seen) <= 3 and seen.totals["sync"] == seen.totals["D2H"] == 0  # the sort itself is not counted
        assert found.dtype == dtype
        assert_close(found, text_of(layers.embedding_backward)(*given), 10 * tol)
        expected = np.zeros((V, D), dtype)
        for token, row in zip(tokens.reshape(-1), dy.reshape(-1, D), strict=True):
            expected[token] += row
        assert_same_bits(found, expected)


def test_what_the_kernel_of_an_embedding_does_not_take_goes_by_the_text(rng: Any, put: Any) -> None:
    """Views, an index that CuPy wraps, no tokens, and gradients of another precision."""
    E, tokens, dy = put(np.ones((4, 3))), put(rng.integers(0, 4, (6, 5))), put(rng.standard_normal((5, 3, 6)))
    text = text_of(layers.embedding_backward)
    views = tokens.T, dy.transpose(0, 2, 1)
    assert_close(layers.embedding_backward(E, *views), text(E, *views), 1e-13)
    out = put(np.array([-1, 5])), put(np.array([[1.0, 2, 3], [4, 5, 6]]))
    assert_same_bits(layers.embedding_backward(E, *out), text(E, *out))
    assert not to_host(layers.embedding_backward(E, tokens[:0], put(np.zeros((0, 5, 3))))).any()
    single = put(np.ones((6, 5, 3), np.float32))
    assert_same_bits(layers.embedding_backward(E, tokens, single), text(E, tokens, single))


RULES: list[dict[str, Any]] = [
    {},
    {"allow_unflip": False},
    {"rule": "paper"},
    {"rule": "paper", "norm": "l2"},
    {"rule": "authors"},
    {"rule": "authors", "variant": "text"},
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", RULES, ids=lambda options: "-".join(map(str, options.values())) or "strict")
def test_flips(options: Any, dtype: Any, rng: Any, put: Any) -> None:
    """The same mask to the bit, with ties and maps of zeros among them, from any start and for any budget.

    In either order of memory, and with more units than a block has threads.
    """
    for H, budget in ((1, 0), (1, 1), (5, 2), (33, 7), (40, 40), (1150, 60)):
        eps0 = (rng.random((4, H)) < 0.7).astype(dtype)
        eps = eps0.copy()
        for row in range(4):
            units = rng.permutation(H)[: min(row, budget)]
            eps[row, units] = 1 - eps[row, units]
        im = np.round(rng.standard_normal((4, H)), 1).astype(dtype)
        im[3] = 0
        given = [put(a) for a in (eps, im, eps0)]
        with counting() as seen:
            found = flip(*given, budget, **options)
        assert launches(seen) == 1
        expected = text_of(flip)(*given, budget, **options)
        assert_same_bits(found, expected)
        assert_same_bits(flip(*map(by_columns, given), budget, **options), expected)


@pytest.mark.parametrize("options", RULES, ids=lambda options: "-".join(map(str, options.values())) or "strict")
def test_a_map_with_nan_gives_a_mask_until_it_is_raised(options: Any, rng: Any, put: Any) -> None:
    """NaN counts as no gain: no unit is taken that the map does not name, in its own row or another."""
    eps, im = (rng.random((3, 40)) < 0.7).astype(float), rng.standard_normal((3, 40))
    im[0], im[1, ::3] = np.nan, np.nan
    flip(put(eps), put(rng.standard_normal((3, 40))), put(eps), 5, **options)  # leaves ranks in shared memory
    with pytest.raises(NotFiniteError, match="im is NaN for example 0"), readings.at_once():
        found = flip(put(eps), put(im), put(eps), 5, **options)
    assert_same_bits(found, text_of(flip)(eps, np.nan_to_num(im), eps, 5, **options))


def test_what_is_wrong_with_a_flip_is_said_when_the_device_is_read(put: Any) -> None:
    eps, im = put(np.ones((2, 3))), put(np.array([[1.0, 2, 3], [1, np.nan, 0]]))
    far = put(np.array([[1.0, 1, 1], [0, 0, 0]]))
    with pytest.raises(NotFiniteError, match="im is NaN for example 1"):
        read_later(flip, eps, im, eps, 1)
    with pytest.raises(ValueError, match="eps differs from eps0 in 3 units in example 1"):
        flip(far, put(np.ones((2, 3))), eps, 2)
    with pytest.raises(ValueError, match=r"eps0 is 0\.5 at \(1, 2\)"):
        flip(eps, put(np.ones((2, 3))), put(np.array([[1, 1, 1], [1, 1, 0.5]])), 1)
    with pytest.raises(ValueError, match=r"eps0 is 0\.5 at \(1, 2\)"):
        masks.one_flip(np.random.default_rng(1), put(np.array([[1, 1, 1], [1, 1, 0.5]])))
    with pytest.raises(ValueError, match="budget is 4, expected"):
        flip(eps, im, eps, 4)


@PRECISIONS
def test_what_is_around_a_flip(dtype: Any, tol: float, rng: Any, put: Any) -> None:
    eps0 = put((rng.random((5, 9)) < 0.5).astype(dtype))
    one, two = (f(np.random.default_rng(1), eps0) for f in (masks.one_flip, text_of(masks.one_flip)))
    assert_same_bits(one, two)
    assert_same_bits(masks.one_flip(np.random.default_rng(1), by_columns(eps0)), two)
    eps = np.finfo(dtype).eps
    f0 = rng.standard_normal((3, 6, 7)).astype(dtype)
    f1 = f0 * (1 + np.array([0, 20, 90, 200, 0, 0])[:, None] * eps).astype(dtype)
    f1[2, 4, 3], f1[0, 5, 0] = 1, np.nan
    d = np.array([0, (50 * eps) ** 2, 0, 0, 0, 0])
    given = put(f0), put(f1), put(d)
    same, zeroed = influence.agree(*given)
    assert_same_bits((same, zeroed), text_of(influence.agree)(*given))
    assert to_host(same).tolist() == [True, True, True, False, False, False]
    assert not to_host(zeroed).any()
    far = influence.agree(put(f0), put(f1), put(d + 1))
    assert_same_bits(far, text_of(influence.agree)(put(f0), put(f1), put(d + 1)))
    assert to_host(far[1]).min() >= 1
    im = {name: rng.standard_normal((6, H)).astype(dtype) for name, H in (("layer0", 4), ("layer1", 1150))}
    for values in im.values():
        values[3] = 0
    maps = {name: put(values) for name, values in im.items()}
    assert_same_bits(influence.zero_maps(maps, same), text_of(influence.zero_maps)(maps, same))
    turned = {name: by_columns(values) for name, values in maps.items()}
    assert_same_bits(influence.zero_maps(turned, same), text_of(influence.zero_maps)(maps, same))


OPTIMIZERS: list[Any] = [
    SGD(0.1),
    SGD(0.1, momentum=0.9, weight_decay=0.01),
    RMSProp(0.01),
    Adam(0.01),
    ASGD(0.5, 0.01),
    ASGD(0.5, interval=None),
]
CLIPS = [None, Clip(0.5), Clip(1e6), Clip(0.3, "value"), Clip(0.5, only=("cells",), but=("cells.0.b",))]


@PRECISIONS
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_updates(optimizer: Any, dtype: Any, tol: float, rng: Any, put: Any) -> None:
    """Steps of a tree by three launches, with every clip; a leaf of several blocks, and one of a single number."""
    params: Any = {"cells": ({"W": rng.standard_normal((50, 97)), "b": rng.standard_normal(1)},), "V": np.ones((3, 2))}
    params = minadv.base.trees.tree_map(lambda a: put(a.astype(dtype)), params)
    mine = theirs = params
    state = other = optimizer.init(params)
    for step, clip in enumerate(CLIPS):
        grads = minadv.base.trees.tree_map(lambda a: put(rng.standard_normal(a.shape).astype(dtype)), params)
        how: dict[str, Any] = {"step": step, "loss": 1.0, "rate": 0.5}
        with counting() as seen:
            mine, state = updated(clip, optimizer, mine, grads, state, **how)
        assert (launches(seen), seen.totals["sync"]) == (3 if clip is not None and clip.how == "norm" else 2, 1)
        theirs, other = text_of(updated)(clip, optimizer, theirs, grads, other, **how)
        assert_close((mine, state), (theirs, other), 10 * tol)


@PRECISIONS
def test_the_norm_of_a_gradient_is_taken_without_a_copy(dtype: Any, tol: float, rng: Any, put: Any) -> None:
    """Its squares may be too large for single precision."""
    grads = {"W": put(rng.standard_normal((60, 90)).astype(dtype)), "b": put(np.full(3, 1e25, dtype))}
    for group in (None, ("W",), ("b",)):
        with counting() as seen:
            found = global_norm(grads, group)
        assert found.dtype == np.float64
        assert seen.bytes["alloc"] < grads["W"].nbytes
        assert float(found) == pytest.approx(float(text_of(global_norm)(grads, group)), rel=1e-6)


def test_a_device_flushes_no_subnormal_numbers(put: Any) -> None:
    small = put(np.full(3, 1e-40, np.float32))
    with counting() as seen:
        flush_vanished(small)
    assert launches(seen) == 0
    assert float(small.min()) > 0


@pytest.mark.parametrize(("leaf", "bad"), [("cells", np.nan), ("V", np.inf), ("V", 1e200)])
def test_an_update_that_is_not_finite(leaf: str, bad: float, put: Any) -> None:
    params = {"cells": put(np.ones((3, 4))), "V": put(np.ones(5))}
    grads = {**params, leaf: params[leaf].copy()}
    grads[leaf].ravel()[2] = bad
    said = (
        "the norm of the gradient is not finite" if math.isfinite(bad) else rf"the gradient is not finite.*\({leaf}\)"
    )
    with pytest.raises(TrainingError, match=said):
        updated(Clip(1.0), Adam(0.1), params, grads, Adam(0.1).init(params), step=3, loss=1.0, rate=1.0)
    with pytest.raises(TrainingError, match=r"the update is not finite at step 3 \(params\.V"):
        updated(
            None,
            SGD(1.0),
            params,
            {"cells": put(np.ones((3, 4))), "V": put(np.full(5, 20.0))},
            SGD(1.0).init(params),
            step=3,
            loss=1.0,
            rate=1e308,
        )
    with pytest.raises(TrainingError, match=said), readings.at_once():
        updated(Clip(1.0), Adam(0.1), params, grads, Adam(0.1).init(params), step=3, loss=1.0, rate=1.0)
    with pytest.raises(TrainingError, match="the loss is not finite"):
        updated(None, SGD(1.0), params, params, SGD(1.0).init(params), step=3, loss=math.nan, rate=1.0)


def test_host_and_device_arrays_are_not_mixed(put: Any) -> None:
    params, grads = {"W": put(np.ones((3, 4)))}, {"W": np.ones((3, 4))}
    with pytest.raises(TypeError, match="on the host"):
        updated(None, SGD(1.0), params, grads, SGD(1.0).init(params), step=3, loss=1.0, rate=1.0)
    with pytest.raises(TypeError, match="on the host"):
        global_norm({"V": params["W"], **grads})
    features, d = put(np.ones((2, 3, 4))), put(np.zeros(3))
    with pytest.raises(TypeError, match="on the host"):
        influence.agree(features, np.ones((2, 3, 4)), d)
    with pytest.raises(TypeError, match="on the host"):
        influence.agree(features, features, np.zeros(3))


READ = "memory, acts = self._memory.get(), self._acts"
"""The one line at which a training step waits for the device: after the term, and after the update."""


def read_twice(seen: Any) -> None:
    assert seen.totals["sync"] == seen.totals["D2H"] == 2
    assert {_source(line) for kind in ("sync", "D2H") for line in seen.where[kind]} == {READ}


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_what_a_step_of_adversarial_dropout_asks_of_the_device(cell: str, padded: bool, put: Any) -> None:
    """The same number of launches however long the sequences are, and two readings, none of them within a pass."""
    rng, asked = np.random.default_rng(0), []
    for T in (16, 32):

        def split(n: int, T: int = T) -> Split:
            lengths = T - np.arange(n) if padded else None
            return put(Split(rng.standard_normal((n, T, 1)).astype(np.float32), rng.integers(0, 10, n), lengths))

        data = Images("toy", 10, split(4), split(2), split(2))
        task = Classify(Classifier(1, 100, 10, cell=cell), data, AdD(), batch_size=2)
        recipe = Recipe(steps=10, optimizer=RMSProp(1e-3))
        state, worker = start(task, recipe), OneWorker(task)
        state, _ = advance(task, recipe, state, worker)
        with counting() as seen:
            advance(task, recipe, state, worker)
        asked.append(launches(seen))
        read_twice(seen)
    assert asked[0] == asked[1] <= 120


def _source(line: str) -> str:
    file, number = line.rsplit(":", 1)
    return linecache.getline(str(Path(minadv.__file__).parent / file), int(number)).strip()


@pytest.mark.parametrize("units", [(16, 16), (1040, 16)], ids=["few units", "many"])
def test_a_language_models_step_reads_the_device_twice(units: Any, put: Any) -> None:
    text = corpus()
    parts = [put(part) for part in (text.train, text.valid, text.test)]
    lm = LanguageModel(len(text.vocabulary), 16, units, **DROPOUTS)
    task = LanguageTask(lm, *parts, regularizer=AdD(budgets=2, share_noise=False), batch_size=2, bptt=3)
    recipe, worker = Recipe(steps=10, optimizer=SGD(1.0), clip=Clip(0.25)), OneWorker(task)
    state, _ = advance(task, recipe, start(task, recipe), worker)
    with counting() as seen:
        advance(task, recipe, state, worker)
    read_twice(seen)


@pytest.mark.parametrize("regularizer", [AdD(budgets=2, share_noise=False), VD(p=0.5)], ids=["AdD", "VD"])
@pytest.mark.parametrize("draws", ["philox-1", "stream"])
def test_what_a_language_models_step_moves_to_the_device(draws: Any, regularizer: Any, put: Any) -> None:
    """A few numbers for each example, and no mask: the same however many units there are. By the stream it is more."""
    text, moved = corpus(), []
    parts = [put(part) for part in (text.train, text.valid, text.test)]
    for units in (16, 64):
        lm = LanguageModel(len(text.vocabulary), units, (units, units), **DROPOUTS)
        task = LanguageTask(lm, *parts, regularizer=regularizer, batch_size=4, bptt=5, draws=draws)
        params, carry, worker = task.init(), task.first_carry(), OneWorker(task)
        worker.step(params, 3, weight=1.0, carry=carry)
        with counting() as seen:
            worker.step(params, 3, weight=1.0, carry=carry)
        moved.append(seen.bytes["H2D"])
    if draws == "stream":
        assert moved[1] > 2 * 64 * 4 * 64  # the masks of the recurrent weights alone
    else:
        assert moved[1] == moved[0] < 2_000
