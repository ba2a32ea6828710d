"""The contenders of the benchmark do the same work, and what checks them can tell."""

import contextlib
import os
from dataclasses import replace
from functools import partial
from math import nan

import numpy as np
import pytest

pytest.importorskip("threadpoolctl", reason="experiments set BLAS threads")

from experiments.bench.contenders import check, limit, memory, processes, registry, textbook
from experiments.bench.contenders.ours import Ours
from experiments.bench.contenders.problem import Size, draw, merge
from experiments.bench.contenders.processes import ContenderError, Runner, call
from experiments.bench.contenders.registry import Family, Setting
from experiments.bench.contenders.textbook import Textbook
from minadv import flip as minadv_flip

SIZE = Size("small", T=7, B=5, I=3, H=12, delta=0.3)
EXACT = dict.fromkeys(check.TOLERANCES, 1e-9)


@pytest.fixture(autouse=True)
def host_only(request):
    if request.config.getoption("backend") == "cupy":
        pytest.skip("the benchmark runs on the host")


def expect_equal(contender, K, size=SIZE, tolerances=EXACT, given=None):
    """A contender's outcome against the textbook's, which goes on with the contender's masks."""
    found = contender.outcome(K, given)
    errors = check.errors(found, check.reference(size, 0, K, found.used), size.budgets(K))
    for name, error in errors.items():
        assert error <= tolerances[name], (name, error)
    assert all((eps != 1).any() for eps in found.flipped), "something is flipped"
    return found


def torch_contender(problem, **options):
    pytest.importorskip("torch")
    from experiments.bench.contenders.pytorch import PyTorch

    return PyTorch(problem, **options)


def jax_contender(problem, **options):
    jax = pytest.importorskip("jax")
    from experiments.bench.contenders.jax_scan import Jax

    if problem.x.dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    return Jax(problem, **options)


CONTENDERS = [
    pytest.param(partial(Ours, workers=1), id="minadv"),
    pytest.param(partial(Ours, workers=1, remat=True), id="minadv-remat"),
    pytest.param(partial(torch_contender, how="eager"), id="eager", marks=pytest.mark.torch),
    pytest.param(
        partial(torch_contender, how="scripted"),
        id="scripted",
        marks=[pytest.mark.torch, pytest.mark.filterwarnings("ignore")],
    ),
    pytest.param(
        partial(torch_contender, how="compiled"),
        id="compiled",
        marks=[pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")],
    ),
    pytest.param(partial(jax_contender, unroll=4), id="jax", marks=pytest.mark.filterwarnings("ignore")),
]


@pytest.mark.parametrize("make", CONTENDERS)
def test_contenders_do_the_same(make):
    """The same maps, masks and gradients; after a step the same weights, so that the next outcome is the same too."""
    contender, right = make(draw(SIZE, 0, np.float64)), Textbook(draw(SIZE, 0, np.float64))
    before = expect_equal(contender, 2)
    contender.step(2)
    right.step(2)
    found = contender.outcome(2)
    assert found.loss == pytest.approx(right.outcome(2).loss, rel=1e-12)
    assert abs(found.loss - before.loss) > 1e-6, "a step is larger than the tolerance"


@pytest.mark.parametrize("make", CONTENDERS)
def test_in_single_precision(make):
    """Within tolerance of float64, with masks from outside too, where a contender takes them."""
    problem = draw(SIZE, 0)
    contender = make(problem)
    expect_equal(contender, 1, tolerances=check.TOLERANCES)
    given = [np.roll(problem.start, 1, axis=1)]
    found = expect_equal(contender, 1, tolerances=check.TOLERANCES, given=given)
    if not isinstance(contender, Ours):
        np.testing.assert_array_equal(found.used[0], given[0])
        assert not np.array_equal(found.flipped[0], given[0])


def test_a_team_of_two(monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    contender = Ours(draw(SIZE, 0, np.float64), workers=2)
    try:
        expect_equal(contender, 2)
        contender.step(2)
    finally:
        contender.close()


FLIPS = [
    pytest.param(lambda eps, im, budget: textbook.flip(eps, im, budget), id="textbook"),
    pytest.param(lambda *args: _torch_flip(*args), id="torch", marks=pytest.mark.torch),
    pytest.param(lambda *args: _jax_flip(*args), id="jax", marks=pytest.mark.filterwarnings("ignore")),
]


def _torch_flip(eps, im, budget):
    torch = pytest.importorskip("torch")
    from experiments.bench.contenders.pytorch import flip

    return flip(torch.tensor(eps), torch.tensor(im), budget).numpy()


def _jax_flip(eps, im, budget):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from experiments.bench.contenders.jax_scan import flip

    return np.asarray(flip(jax.numpy.array(eps), jax.numpy.array(im), budget))


@pytest.mark.parametrize("flip", FLIPS)
def test_flips_are_strict(flip):
    """From masks with some units dropped already, so that units come back and make room, and with ties."""
    rng = np.random.default_rng(0)
    for budget in (1, 3, 6):
        ranks = rng.permuted(np.tile(np.arange(10), (40, 1)), axis=1)
        eps = (ranks >= rng.integers(budget + 1, size=(40, 1))).astype(float)
        im = rng.integers(-3, 4, size=eps.shape).astype(float)
        right = minadv_flip.flip(eps, im, np.ones_like(eps), budget)
        np.testing.assert_array_equal(flip(eps, im, budget), right)
        assert (right > eps).any() or budget == 1, "some units come back"


def test_shares_make_the_whole():
    problem = draw(SIZE, 0, np.float64)
    whole = Textbook(problem).outcome(2)
    parts = merge([Textbook(problem.share(rank, 2)).outcome(2) for rank in range(2)])
    errors = check.errors(parts, whole, SIZE.budgets(2))
    assert max(errors.values()) < 1e-12


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("loss", lambda o: replace(o, loss=1.0001 * o.loss)),
        ("map", lambda o: replace(o, maps=(o.maps[0], 1.01 * o.maps[1]))),
        ("map", lambda o: replace(o, maps=(o.maps[0], o.maps[1][::-1]))),
        ("map", lambda o: replace(o, maps=(nan * o.maps[0], o.maps[1]))),
        ("regret", lambda o: replace(o, flipped=(np.ones_like(o.maps[0]), o.flipped[1]))),
        ("regret", lambda o: replace(o, flipped=(np.zeros_like(o.maps[0]), o.flipped[1]))),
        ("regret", lambda o: replace(o, flipped=(o.flipped[0], np.roll(o.flipped[1], 1, axis=1)))),
        ("grads", lambda o: replace(o, grads=(*o.grads[:4], 1.001 * o.grads[4]))),
        ("grads", lambda o: replace(o, grads=(o.grads[0], 0 * o.grads[1], *o.grads[2:]))),
    ],
)
def test_what_is_wrong_is_told(name, change):
    right = Textbook(draw(SIZE, 0, np.float64)).outcome(2)
    assert not check.wrong(check.errors(right, right, SIZE.budgets(2)))
    wrong = check.wrong(check.errors(change(right), right, SIZE.budgets(2)))
    assert len(wrong) == 1
    assert wrong[0].startswith(f"{name} is off by")


def test_a_reference_follows_the_masks():
    """A contender that breaks a tie differently is compared with a reference that goes on as it does."""
    made = []

    def make(*args):
        made.append(args)
        return check.reference(*args)

    references = check.References(SIZE, 0, make)
    assert references.masks(1) is None
    found = Textbook(draw(SIZE, 0, np.float64)).outcome(1)
    assert max(references.errors(1, found).values()) == 0
    other = [np.roll(found.used[0], 1, axis=0)]
    assert max(references.errors(1, Textbook(draw(SIZE, 0, np.float64)).outcome(1, other)).values()) == 0
    assert max(references.errors(1, found).values()) == 0
    assert len(made) == 2, "one for each set of masks"
    np.testing.assert_array_equal(references.masks(1)[0], found.used[0])


class Counting:
    """NumPy, with what the limit is made of counted."""

    def __init__(self):
        self.products = self.tanhs = self.exps = 0

    def __getattr__(self, name):
        return getattr(np, name)

    def matmul(self, a, b, out):
        self.products += out.size * b.shape[0]
        return np.matmul(a, b, out=out)

    def tanh(self, a, out):
        self.tanhs += a.size
        return np.tanh(a, out=out)

    def exp(self, a, out):
        self.exps += a.size
        return np.exp(a, out=out)


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", ["rows", "columns", "gates"])
@pytest.mark.parametrize("I", [1, SIZE.I])
def test_the_limit_does_what_it_says(K, shared, form, I, monkeypatch):
    contender = limit.Limit(draw(replace(SIZE, I=I), 0), form=form, shared=shared)
    counted = Counting()
    monkeypatch.setattr(limit, "np", counted)
    contender.step(K)
    T, B, H = SIZE.T, SIZE.B, SIZE.H
    recurrent, inputs = T * B * H * 4 * H, T * B * I * 4 * H
    forward, backward = (K + 2, 2) if 8 * I <= H else (1, 1)  # beside the state, or once for all
    assert counted.products == 2 * (K + 2) * recurrent + 2 * recurrent + (forward + backward) * inputs
    assert (counted.exps, counted.tanhs) == (3 * (K + 2) * T * B * H, 2 * (K + 2) * T * B * H)
    with pytest.raises(NotImplementedError, match="nothing that could be compared"):
        contender.outcome(K)


TEXTBOOK = Family("textbook", "experiments.bench.contenders.textbook:Textbook", ())


def test_two_processes_step_as_one():
    alone = Textbook(draw(SIZE, 0, np.float64))
    alone.step(1)
    right = alone.outcome(1)
    with Runner(TEXTBOOK, Setting("pair", 1, 2), SIZE, dtype="float64") as runner:
        assert runner.step(1) > 0
        found = runner.outcome(1, None)
        given = runner.outcome(1, [np.ones_like(m) for m in right.used])
        measured = runner.memory(1)
    errors = check.errors(found, right, SIZE.budgets(1))
    assert max(errors.values()) < 1e-12
    assert (given.used[0] == 1).all()
    assert measured["ever"] >= measured["peak"] >= measured["imported"] > 0


class OneFails:
    """Of two processes the first to begin a step fails, while the other waits for its gradients."""

    def __init__(self, problem, *, path):
        self.path = path

    def step(self, K, exchange):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            raise ArithmeticError("no such luck")
        exchange([np.zeros_like(exchange.own)])


def test_nobody_waits_for_who_has_failed(tmp_path):
    family = Family("one fails", f"{__name__}:OneFails", ())
    with (
        Runner(family, Setting("pair", 1, 2, options={"path": str(tmp_path / "taken")}), SIZE) as runner,
        pytest.raises(ContenderError, match="ArithmeticError: no such luck"),
    ):
        runner.step(1)


def test_a_contender_that_is_silent(monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    with pytest.raises(ContenderError, match=r"it gave no answer in 0\.1 s"):
        call("subprocess:run", args=["sleep", "2"])


def test_a_contender_that_cannot():
    with pytest.raises(ContenderError, match=r"TypeError.*magic"):
        Runner(TEXTBOOK, Setting("magic", options={"magic": 1}), SIZE)
    with pytest.raises(ContenderError, match="ModuleNotFoundError"):
        Runner(replace(TEXTBOOK, maker="no_such_library:Contender"), Setting("none"), SIZE)
    with pytest.raises(ContenderError, match="exit code 3"):
        call("os:_exit", status=3)


def test_threads_are_the_process_s_own(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    for threads, found in ((1, "1"), (2, "2"), (None, None)):
        assert call("os:getenv", threads=threads, key="OPENBLAS_NUM_THREADS") == found


def test_memory_sees_what_is_allocated():
    before = memory.resident()
    if np.isnan(before):
        pytest.skip("no /proc here")
    kept = np.ones(8_000_000)
    assert memory.resident() - before == pytest.approx(kept.nbytes / memory.MB, rel=0.1)
    assert memory.peak([memory.os.getpid()]) >= memory.resident()
    with memory.Sampler([memory.os.getpid()]) as sampler:
        memory.time.sleep(0.1)
    assert sampler.largest > kept.nbytes / memory.MB
    assert np.isnan(memory.resident(2**22 + 1))


def test_every_family_can_be_found():
    for family in registry.FAMILIES.values():
        module = family.maker.partition(":")[0].rpartition(".")[2]
        if module not in ("pytorch", "jax_scan"):
            assert callable(registry.load(family.maker))
        assert len({s.label for s in family.settings}) == len(family.settings)
