r"""Clip, optimizer and checks of a training step on a device, over all weights at once: three launches, one reading.

The kernels take a table of addresses, so that the leaves of a tree are one array to them; what comes out lies in one
piece of memory a tree. The formulas are those of `minadv.training.clip` and `minadv.training.optimizers`. Imported only
once there are CuPy arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import cupy
import numpy as np

from minadv.backend import namespace
from minadv.base.readings import Readings
from minadv.base.trees import leaves, tree_map
from minadv.fast.device_source import CHUNK, MOST_LEAVES, PRECISIONS, THREADS, source

ARRAYS = ("grads", "params", "new", "one", "new_one", "other", "new_other")
TABLE = np.dtype(
    [
        ("addresses", np.uint64, (len(ARRAYS), MOST_LEAVES)),
        ("sizes", np.int64, MOST_LEAVES),
        ("blocks", np.int32, MOST_LEAVES),  # where the blocks of each leaf end
        ("clipped", np.int32, MOST_LEAVES),
    ]
)


@functools.cache
def kernel(name: str, dtype: str) -> Any:
    """A kernel of this file for weights of a dtype."""
    return cupy.RawKernel(source("update", T=dtype), f"minadv_{name}")


def _sgd(opt: Any, state: Any) -> tuple[int, float, tuple[float, ...], tuple[str, ...]]:
    return 0, 1.0, (opt.weight_decay, opt.momentum), ("velocity",) if opt.momentum else ()


def _rmsprop(opt: Any, state: Any) -> tuple[int, float, tuple[float, ...], tuple[str, ...]]:
    return 1, 1.0, (opt.decay, 1 - opt.decay, opt.tiny), ("mean_square",)


def _adam(opt: Any, state: Any) -> tuple[int, float, tuple[float, ...], tuple[str, ...]]:
    t, b1, b2 = state.steps + 1, opt.beta1, opt.beta2
    numbers = (b1, 1 - b1, b2, 1 - b2, math.sqrt(1 - b2**t), opt.tiny)
    return 2, 1 / (1 - b1**t), numbers, ("mean", "mean_square")


def _asgd(opt: Any, state: Any) -> tuple[int, float, tuple[float, ...], tuple[str, ...]]:
    share = 1 / (state.averaged + 1) if state.started else 0.0
    return 3, 1.0, (opt.weight_decay, share), ("average",) if state.started else ()


OPTIMIZERS = {
    f"minadv.training.optimizers.{name}": numbers
    for name, numbers in {"SGD": _sgd, "RMSProp": _rmsprop, "Adam": _adam, "ASGD": _asgd}.items()
}
"""By the optimizer: the number of its kernel, a factor of its rate, its numbers, and the trees of its state."""


def updated(
    clip: Any, optimizer: Any, params: Any, grads: Any, state: Any, *, step: int, loss: float, rate: float
) -> Any:
    """See `minadv.training.update.updated`; what is not finite is left to that function to name."""
    numbers_of = OPTIMIZERS.get(f"{type(optimizer).__module__}.{type(optimizer).__qualname__}")
    if numbers_of is None or not math.isfinite(loss):
        return NotImplemented
    kind, factor, numbers, names = numbers_of(optimizer, state)
    trees = [grads, params, *(getattr(state, name) for name in names)]
    found = [dict(leaves(tree)) for tree in trees]
    namespace(*(a for tree in found for a in tree.values()))  # raises where host and device arrays are mixed
    weights, dtypes = list(found[1].values()), {str(a.dtype) for tree in found for a in tree.values()}
    alike = all([*tree] == [*found[1]] for tree in found) and len(weights) <= MOST_LEAVES and len(dtypes) == 1
    if not (alike and dtypes <= {*PRECISIONS}):
        return NotImplemented
    if any(a.shape != b.shape for tree in found for a, b in zip(tree.values(), weights, strict=True)):
        return NotImplemented
    group = frozenset() if clip is None else clip.group(grads)

    given = [[cupy.ascontiguousarray(a) for a in tree.values()] for tree in found]
    fresh = [_empty(weights) for _ in range(1 + len(names))]
    columns = dict(zip(("grads", "params", "one", "other"), given, strict=False))
    columns |= dict(zip(("new", "new_one", "new_other"), fresh, strict=False))
    table, blocks = _table(columns, weights, [name in group for name in found[1]])
    how = 0 if clip is None else 1 if clip.how == "norm" else 2
    limit = np.float64(1 if clip is None else clip.limit)
    dtype, bad, reading = dtypes.pop(), [], Readings()  # its own: whether to go on is known only when it is read
    squares, scale = cupy.empty(blocks, np.float64), cupy.empty(1, np.float64)
    wrong = reading.word(weights[0])
    kernel("squares", dtype)((blocks,), (THREADS,), (table, squares, wrong))
    if how == 1:
        kernel("scale", dtype)((1,), (THREADS,), (squares, np.int32(blocks), limit, scale, wrong))
    lr = np.float64(float(optimizer.lr * rate) * factor)
    padded = [np.float64(number) for number in (*numbers, *[0.0] * (6 - len(numbers)))]
    head = (table, scale, np.int32(how), limit, np.int32(kind), lr)
    kernel("update", dtype)((blocks,), (THREADS,), (*head, *padded, wrong))
    reading.note(lambda: bad.append(True))
    reading.numbers()
    if bad:
        return NotImplemented
    new = [_like(params, views) for views in fresh]
    changed = dict(zip(names, new[1:], strict=True))
    if kind == 2:
        changed["steps"] = state.steps + 1
    if kind == 3:
        changed |= {"averaged": state.averaged + 1} if state.started else {"average": new[0]}
    return new[0], dataclasses.replace(state, **changed)


def global_norm(grads: Any, group: Any = None) -> Any:
    """See `minadv.training.clip.global_norm`: squares and sums in double precision, without a copy of any leaf."""
    chosen = None if group is None else frozenset(group)
    named = {name: g for name, g in leaves(grads) if chosen is None or name in chosen}
    namespace(**named)  # raises where host and device arrays are mixed
    found = [cupy.ascontiguousarray(g) for g in named.values()]
    dtypes = {str(g.dtype) for g in found}
    if not (0 < len(found) <= MOST_LEAVES and len(dtypes) == 1 and dtypes <= {*PRECISIONS}):
        return NotImplemented
    table, blocks = _table({"grads": found}, found, [True] * len(found))
    squares, unread = cupy.empty(blocks, np.float64), cupy.empty(1, np.int32)
    kernel("squares", dtypes.pop())((blocks,), (THREADS,), (table, squares, unread))
    return cupy.sqrt(squares.sum())


def _empty(weights: list[Any]) -> list[Any]:
    """Arrays like these in one piece of memory, each at a multiple of 64 entries."""
    firsts = np.cumsum([0] + [-(-a.size // 64) * 64 for a in weights])
    flat = cupy.empty(int(firsts[-1]), weights[0].dtype)
    return [flat[n : n + a.size].reshape(a.shape) for n, a in zip(firsts.tolist(), weights, strict=False)]


def _like(tree: Any, views: list[Any]) -> Any:
    rest = iter(views)
    return tree_map(lambda _: next(rest), tree)


def _table(columns: dict[str, list[Any]], weights: list[Any], clipped: list[bool]) -> tuple[Any, int]:
    """The arrays as the kernels take them, and the number of their blocks."""
    table = np.zeros(1, TABLE)
    for name, arrays in columns.items():
        table["addresses"][0, ARRAYS.index(name), : len(arrays)] = [a.data.ptr for a in arrays]
    ends = np.cumsum([-(-a.size // CHUNK) for a in weights])
    table["sizes"][0, : len(weights)] = [a.size for a in weights]
    table["blocks"][0, : len(weights)] = ends
    table["clipped"][0, : len(weights)] = clipped
    return table.view(np.dtype((np.void, TABLE.itemsize))), int(ends[-1])
