"""The CUDA kernels compute what the readable cells define, with few launches and no allocation in a step."""

import numpy as np
import pytest

from minadv import fast, lstm
from minadv.fast import choice
from minadv.fast.cuda_source import MOST_PASSES
from minadv.fast.engines import Inputs
from minadv.models import stack
from tests.support import cuda

SIZES = (4, 36, 64, 100, 128)


@pytest.fixture
def kernels(device, monkeypatch):
    """The modules of the engine, on a device with as much shared memory as most have."""
    cuda.needs_gpu(device)
    from minadv.fast import cuda_engine

    monkeypatch.setattr(cuda_engine, "shared_limit", lambda: 99 * 1024)
    return cuda_engine


def launched(monkeypatch, kernels):
    """Names of the kernels that are made from now on: of whole passes or of steps."""
    made = []
    for name in ("pass_kernels", "step_kernels"):
        real = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *a, _real=real, _name=name: made.append(_name) or _real(*a))
    return made


@pytest.mark.parametrize("H", SIZES)
@pytest.mark.parametrize("variant", cuda.VARIANTS)
def test_a_pass_in_one_launch(variant, H, kernels, rng, device, monkeypatch):
    """Masks, padding, first states and gradients of every step, each with and without: sixteen passes."""
    made = launched(monkeypatch, kernels)
    given = cuda.problem(variant, rng, T=4, B=2 if H < 100 else 1, I=3, H=H)
    found = cuda.by_engine(kernels.Cuda(*cuda.VARIANTS[variant]), given, device, np.float32)
    assert set(made) == {"pass_kernels"}
    assert cuda.gap(found, cuda.by_cell(variant, given)) <= 2e-6


@pytest.mark.parametrize("I", [3, 11], ids=["few inputs", "more"])
@pytest.mark.parametrize(("H", "dtype", "tolerance"), [(132, np.float32, 2e-6), (37, np.float64, 1e-13)])
@pytest.mark.parametrize("variant", cuda.VARIANTS)
def test_two_launches_a_step(variant, H, dtype, tolerance, I, kernels, rng, device, monkeypatch):
    made = launched(monkeypatch, kernels)
    given = cuda.problem(variant, rng, T=5, B=2, I=I, H=H)
    found = cuda.by_engine(kernels.Cuda(*cuda.VARIANTS[variant]), given, device, dtype)
    assert set(made) == {"step_kernels"}
    assert cuda.gap(found, cuda.by_cell(variant, given)) <= tolerance


@pytest.mark.parametrize("I", [8, 9])
@pytest.mark.parametrize("H", [3, 6, 30])
@pytest.mark.parametrize("variant", cuda.VARIANTS)
def test_units_that_are_no_multiple_of_four(variant, H, I, kernels, rng, device):
    """And inputs that the kernel multiplies itself, or that are multiplied beforehand."""
    given = cuda.problem(variant, rng, T=4, B=2, I=I, H=H)
    found = cuda.by_engine(kernels.Cuda(*cuda.VARIANTS[variant]), given, device, np.float32)
    assert cuda.gap(found, cuda.by_cell(variant, given)) <= 2e-6


def test_a_device_with_little_shared_memory_makes_steps(kernels, rng, device, monkeypatch):
    """The numbers are those of the kernels of a step."""
    made = launched(monkeypatch, kernels)
    given = cuda.problem("lstm", rng, T=3, B=2, I=2, H=128)
    for limit, expected in ((99 * 1024, "pass_kernels"), (48 * 1024, "step_kernels")):
        made.clear()
        monkeypatch.setattr(kernels, "shared_limit", lambda limit=limit: limit)
        found = cuda.by_engine(kernels.Cuda("lstm"), given, device, np.float32)
        assert set(made) == {expected}
        assert cuda.gap(found, cuda.by_cell("lstm", given)) <= 2e-6


def one_pass(rng, device, cell, T, B, I, H, *, padded, dtype):
    """Parameters, a masked pass, and the gradients to go back with."""
    params, passes, dhs, dstates = cuda.problem(cell, rng, T=T, B=B, I=I, H=H)
    n = cuda.CHOICES.index((True, padded, True, True))
    return cuda.put_as((params, passes[n], dhs[n], dstates[n]), dtype, device)


def counted(engine, given):
    """What a pass and the way back ask of the device, with kernels compiled before."""
    import minadv

    params, one, dh, dstate = given
    counters = cuda.counters()
    for _ in range(2):
        with counters.counting(under=minadv.__path__[0]) as seen:
            [(_, _, cache)] = engine.forward(params, [one])
            engine.backward(params, [cache], [dh], [dstate])
    return {kind: count for kind, count in seen.totals.items() if count and kind != "cudaMalloc"}  # the pool's own


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_launches_of_a_pass_do_not_depend_on_its_length(cell, padded, kernels, rng, device):
    """One kernel forward, one back, and products for the gradients of weights and inputs."""
    found = [
        counted(kernels.Cuda(cell), one_pass(rng, device, cell, T, 1, 1, 100, padded=padded, dtype=np.float32))
        for T in (16, 32)
    ]
    assert found[0] == found[1]
    assert (found[0]["kernel"], found[0]["blas"]) == (2, 5 if cell == "gru" else 2)
    assert set(found[0]) <= {"kernel", "blas", "alloc"}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_launches_of_a_step(cell, dtype, padded, kernels, rng, device):
    """Two forward and two back, no copy, no allocation, no synchronisation."""
    H = 132 if dtype == np.float32 else 6
    few, many = (
        counted(kernels.Cuda(cell), one_pass(rng, device, cell, T, 2, 1, H, padded=padded, dtype=dtype))
        for T in (16, 32)
    )
    assert {name: many[name] - few[name] for name in many if many[name] != few[name]} == {"kernel": 32, "blas": 32}
    assert set(few) <= {"kernel", "blas", "alloc"}


def test_more_passes_than_one_launch_takes(kernels, rng, device, monkeypatch):
    """They are split, and an x that all of them share is multiplied once for each launch at most."""
    given = cuda.problem("lstm", rng, T=3, B=2, I=9, H=6)
    assert len(given[1]) == 2 * MOST_PASSES
    calls = []
    real = kernels.product
    monkeypatch.setattr(kernels, "product", lambda *a, **k: calls.append(a[0].shape) or real(*a, **k))
    found = cuda.by_engine(kernels.Cuda("lstm"), given, device, np.float32)
    assert calls.count((6, 9)) == 2
    assert cuda.gap(found, cuda.by_cell("lstm", given)) <= 2e-6


def test_which_engine_is_chosen(device, rng, put, monkeypatch):
    """On a GPU the newest; runs of earlier versions, and MINADV_COMPILED=0, keep what they had."""
    cuda.needs_gpu(device)
    monkeypatch.delenv(choice.COMPILED, raising=False)
    monkeypatch.delenv(choice.ENGINE, raising=False)
    params, x = put(lstm.init(rng, 2, 3)), put(np.zeros((2, 1, 2), np.float32))

    def chosen(asked=None, cell="lstm"):
        return fast.engine(cell, params, [Inputs(x)], asked=asked).name

    assert [chosen(), chosen("fast"), chosen("fast-3"), chosen(cell="gru")] == ["cuda"] * 4
    assert [chosen("fast-1"), chosen("fast-2"), chosen("fast-2", "gru"), chosen("plain")] == [
        *("columns", "columns", "rows", "plain")
    ]
    assert fast.describe(on_gpu=True).why.startswith("CUDA kernels (fast-3)")
    assert fast.describe(on_gpu=True, engine="fast-2").why == "CuPy, with one kernel each for the LSTM's steps"
    monkeypatch.setenv(choice.COMPILED, "0")
    assert chosen() == "columns"
    assert [h.shape for h, _, _ in stack.run_layer("lstm", params, [Inputs(x)])] == [(2, 1, 3)]


@pytest.mark.parametrize("P", [1, 2])
def test_the_steps_of_columns_copy_no_operand(P, rng, device):
    """Runs that earlier versions began: sums over their own memory allocate nothing."""
    cuda.needs_gpu(device)
    from minadv.fast.columns import Columns

    found = []
    for T in (4, 12):
        params, one, _, _ = one_pass(rng, device, "lstm", T, 2, 9, 6, padded=False, dtype=np.float32)
        with cuda.counters().counting(under=".") as seen:
            Columns().forward(params, [one] * P)
        found.append(seen.totals["alloc"])
    assert found[0] == found[1]


def test_a_row_that_was_a_column_is_as_long_as_cublas_expects(device, put, monkeypatch):
    """As weights of one input may be that another library made, turned: from row to row they have any stride."""
    cuda.needs_gpu(device)
    from minadv.fast import cuda_kernels

    seen, real = [], cuda_kernels.cublas
    row, out = put(np.ones((4, 1))).T, device.xp.empty((3, 1))
    assert row.flags.c_contiguous and row.strides == (8, 8)

    class Watched:
        def __getattr__(self, name):
            found = getattr(real, name)
            return (lambda *given: seen.append(given[8]) or found(*given)) if name == "dgemm" else found

    monkeypatch.setattr(cuda_kernels, "cublas", Watched())
    cuda_kernels.product(put(np.ones((3, 4))), row, out, right="t")()
    assert seen == [4]  # lda; cuBLAS refuses less than the four numbers of a row, the emulated one does not
    assert out.tolist() == [[4.0]] * 3


@pytest.mark.parametrize("on", [True, False])
def test_products_round_to_tf32_only_where_that_was_asked_for(on, rng, device, put, monkeypatch):
    cuda.needs_gpu(device)
    from minadv.base import gpu
    from minadv.fast import cuda_kernels

    calls = []
    a, b = put(rng.standard_normal((2, 3)).astype(np.float32)), put(rng.standard_normal((3, 4)).astype(np.float32))
    out, real = device.xp.empty((2, 4), np.float32), cuda_kernels.cublas

    class Watched:
        def __getattr__(self, name):
            if name in ("gemmEx", "sgemm"):
                calls.append(name)
            return getattr(real, name)

    monkeypatch.setattr(cuda_kernels, "cublas", Watched())
    try:
        gpu.set_tf32(device.xp, on)
        cuda_kernels.product(a, b, out)()
    finally:
        gpu.set_tf32(device.xp, False)
    assert calls == ["gemmEx" if on else "sgemm"]
    assert float(abs(out - a @ b).max()) < 1e-6  # the emulated device rounds to single precision either way
