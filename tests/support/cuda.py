"""Problems for the CUDA kernels, their outcome beside that of the readable cells, and what they ask of a device."""

import itertools
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from minadv.backend import Device, to_device, to_host
from minadv.base.trees import leaves, tree_map
from minadv.fast.engines import CELLS, Inputs

VARIANTS = {
    "rnn": ("rnn", "clean"),
    "lstm": ("lstm", "clean"),
    "gru": ("gru", "clean"),
    "gru-masked-leak": ("gru", "masked"),
}
CHOICES = tuple(
    itertools.product([True, False], repeat=4)
)  # with a mask, padding, a first state, gradients of every step


def runs_kernels(module: Any) -> bool:
    """Whether an array module is CuPy itself, and not the stand-in for it, which runs no kernels."""
    return isinstance(getattr(module, "RawKernel", None), type)


def needs_gpu(device: Device) -> None:
    """Skip a test of CUDA kernels where arrays are not CuPy's."""
    if not runs_kernels(device.xp):
        pytest.skip("CUDA kernels need CuPy: pytest --backend=cupy")


def counters() -> ModuleType:
    """The counters of the emulated device; the test is skipped on a real one, which has none."""
    found: ModuleType = pytest.importorskip("counters", reason="launches are counted on the emulated device only")
    return found


def problem(
    variant: str, rng: np.random.Generator, *, T: int, B: int, I: int, H: int
) -> tuple[Any, list[Inputs], list[Any], list[Any]]:
    """Parameters as training begins with them, a pass for each of `CHOICES`, and the gradients to go back with.

    Every number is one that single precision has too.
    """
    module: Any = CELLS[VARIANTS[variant][0]]

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32).astype(np.float64)

    def states() -> Any:
        return module.State(*(0.5 * draw(B, H) for _ in fields(module.State)))

    params = tree_map(lambda a: a.astype(np.float64), module.init(rng, I, H, dtype=np.float32))
    params = tree_map(lambda a: a + 0.25 * draw(*a.shape) if a.ndim == 1 else a, params)  # biases are not all zero
    params = tree_map(lambda a: a.astype(np.float32).astype(np.float64), params)
    x = draw(T, B, I)
    passes, dhs, dstates = [], [], []
    for mask, padding, state, steps in CHOICES:
        m = 1.0 * (rng.random((B, H)) < 0.8) if mask else None
        valid = (rng.random((T, B)) < 0.7) if padding else None
        passes.append(Inputs(x, states() if state else None, m, valid))
        dhs.append(draw(T, B, H) if steps else None)
        dstates.append(states())
    return params, passes, dhs, dstates


def put_as(given: Any, dtype: Any, device: Device) -> Any:
    """A problem's numbers in a precision, on the device; padding stays as it is."""

    def put(leaf: Any) -> Any:
        return leaf.astype(dtype) if getattr(leaf, "dtype", np.bool_) != np.bool_ else leaf

    return to_device(tree_map(put, given), device)


def by_engine(engine: Any, given: Any, device: Device, dtype: Any) -> Any:
    """All passes, run together by an engine: outcomes and gradients of each, and the gradient of the parameters."""
    params, passes, dhs, dstates = put_as(given, dtype, device)
    x = passes[0].x
    done = engine.forward(params, [Inputs(x, p.state, p.m, p.valid) for p in passes])  # one x, not copies of it
    total, grads = engine.backward(params, [cache for _, _, cache in done], dhs, dstates)
    return to_host(([(h, state, g.x, g.state, g.m) for (h, state, _), g in zip(done, grads, strict=True)], total))


def by_cell(variant: str, given: Any) -> Any:
    """The same by the readable cell, pass after pass."""
    (cell, leak), (params, passes, dhs, dstates) = VARIANTS[variant], given
    module, options = CELLS[cell], {"leak": leak} if cell == "gru" else {}
    outcomes, total = [], None
    for p, dh, dstate in zip(passes, dhs, dstates, strict=True):
        h, state, cache = module.forward(params, p.x, state=p.state, m=p.m, valid=p.valid, **options)
        g = module.backward(params, cache, dh, dstate=dstate)
        outcomes.append((h, state, g.x, g.state, g.m))
        total = g.params if total is None else tree_map(np.add, total, g.params)
    return outcomes, total


def gap(found: Any, expected: Any) -> float:
    """The largest difference in any array, over the largest number of that array."""
    pairs = [(a, e) for (_, a), (_, e) in zip(leaves(found), leaves(expected), strict=True)]
    assert len(pairs) > 20 and sum(np.any(e) for _, e in pairs) > len(pairs) / 2
    return max(float(abs(a - e).max() / (abs(e).max() or 1.0)) for a, e in pairs)
