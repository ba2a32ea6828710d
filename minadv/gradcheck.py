r"""Finite differences for any forward/backward pair.

An affine layer, for example::

    def forward(x, W, b): return layers.affine(x, W, b)
    def backward(args, dy): return dict(zip(("x", "W", "b"), layers.affine_backward(args["x"], args["W"], dy)))
    print(check(forward, backward, {"x": x, "W": W, "b": b}, rng=rng))

The loss is the inner product of the output with a **random cotangent**: a sum would hide every error that adds up to
zero, as the gradient of a softmax does. Each argument is checked apart from the others, entry by entry if it is small
and along random directions if it is large, by central differences

.. math:: \frac{L(\theta + s v) - L(\theta - s v)}{2 s}

in float64. With the analytic gradient a and the numeric one n it passes if

.. math:: \|a - n\|_\infty \le tol \cdot \max(\|a\|_\infty, \|n\|_\infty, floor)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv.backend import Array, same_place, to_host
from minadv.base.checks import expect_generator
from minadv.base.trees import leaves, tree_map


class GradientError(AssertionError):
    """A backward disagrees with finite differences; the message is the report."""


@dataclass(frozen=True)
class Row:
    """The check of one argument."""

    name: str
    how: str
    analytic: float  # largest absolute entry
    numeric: float
    error: float  # largest absolute difference, and where it is
    worst: str
    passed: bool


@dataclass(frozen=True)
class Report:
    """The checks of all arguments; printing it shows a table, and it is true if all of them passed.

    ``unchecked`` are the arguments that backward returned no gradient for, and ``left_out`` those of them that were
    meant to be left out: any other makes the check fail.
    """

    rows: tuple[Row, ...]
    tol: float
    unchecked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows) and set(self.unchecked) <= set(self.left_out)

    def __bool__(self) -> bool:
        return self.passed

    def __getitem__(self, name: str) -> Row:
        return {row.name: row for row in self.rows}[name]

    def __str__(self) -> str:
        lines = [f"gradient check, tolerance {self.tol:g}: {'passed' if self.passed else 'FAILED'}"]
        width = max((len(name) for name in (*(row.name for row in self.rows), *self.unchecked)), default=0)
        for row in self.rows:
            lines.append(
                f"  {'ok  ' if row.passed else 'FAIL'} {row.name:{width}}  |analytic| {row.analytic:.3e}  "
                f"|numeric| {row.numeric:.3e}  difference {row.error:.1e} at {row.worst} ({row.how})"
            )
        for name in self.unchecked:
            meant = name in self.left_out
            why = (
                "as asked"
                if meant
                else f"backward returned no gradient for it: return one, or name it, left_out={(name,)}"
            )
            lines.append(f"  {'--  ' if meant else 'FAIL'} {name:{width}}  unchecked, {why}")
        return "\n".join(lines)

    def raise_if_failed(self) -> None:
        """Raise GradientError with the report as its message if any argument failed."""
        if not self.passed:
            raise GradientError(str(self))


def check(
    forward: Callable[..., Any],
    backward: Callable[[dict[str, Any], Any], Mapping[str, Any]],
    args: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    step: float = 1e-5,
    tol: float = 1e-6,
    floor: float = 1e-3,
    elementwise: int = 64,
    directions: int = 3,
    left_out: Sequence[str] = (),
) -> Report:
    """Compare a backward with central differences of its forward, argument by argument.

    ``forward(**args)`` returns an array or a tree of arrays. ``backward(args, cotangent)`` takes the arguments and a
    cotangent of the output's structure, and returns the gradients by argument name. An argument with floating numbers
    that it returns none for is listed as unchecked, and the check fails, unless ``left_out`` names the argument. An
    argument may be an array, a Python float, or a tree (a dataclass of parameters): its leaves are checked one by one
    as ``"params.W"``. Arrays of at most ``elementwise`` entries are checked entry by entry, larger ones along
    ``directions`` random directions.

    Raises TypeError for an argument that is not float64, ValueError for a gradient of the wrong shape.
    """
    args = {name: tree_map(_as_scalar, value) for name, value in args.items()}
    expect_generator(rng)
    if isinstance(left_out, str) or set(left_out) - set(args):
        raise ValueError(f"left_out is {left_out!r}, expected a tuple of arguments among {sorted(args)}")
    for label, value in leaves(args):
        dtype = getattr(value, "dtype", None)
        if dtype is not None and dtype.kind == "f" and dtype != np.float64:
            raise TypeError(f"{label} has dtype {dtype}, expected float64 for finite differences")
    output = forward(**args)
    cotangent = tree_map(lambda a: same_place(rng.standard_normal(a.shape), a), output)
    gradients = backward(args, cotangent)
    if not gradients:
        raise ValueError("backward returned no gradients at all: there is nothing to check")
    unknown = set(gradients) - set(args)
    if unknown:
        raise ValueError(f"backward returned gradients for {sorted(unknown)}, but the arguments are {sorted(args)}")

    def loss(name: str, leaf: str, value: Array) -> float:
        changed = {**args, name: _replace(args[name], leaf, value)}
        pairs = zip(leaves(to_host(forward(**changed))), leaves(to_host(cotangent)), strict=True)
        return float(sum(np.sum(a * c) for (_, a), (_, c) in pairs))

    unchecked = [n for n, value in args.items() if n not in gradients and _is_floating(value)]
    rows = []
    for name, gradient in gradients.items():
        analytic = {leaf: np.asarray(value) for leaf, value in leaves(to_host(gradient))}
        for leaf, value in leaves(args[name]):
            label = f"{name}.{leaf}" if leaf else name
            if leaf not in analytic:
                raise ValueError(f"backward returned no gradient for {label}")
            if analytic[leaf].shape != value.shape:
                raise ValueError(f"the gradient of {label} has shape {analytic[leaf].shape}, expected {value.shape}")
            small = value.size <= elementwise
            probes = np.eye(value.size) if small else rng.standard_normal((directions, value.size))
            numeric = np.array(
                [
                    (
                        loss(name, leaf, value + same_place(step * v.reshape(value.shape), value))
                        - loss(name, leaf, value - same_place(step * v.reshape(value.shape), value))
                    )
                    / (2 * step)
                    for v in probes
                ]
            )
            expected = probes @ analytic[leaf].reshape(-1)
            rows.append(_row(label, expected, numeric, value.shape if small else None, tol, floor))
    return Report(tuple(rows), tol, tuple(unchecked), tuple(left_out))


def _as_scalar(leaf: Any) -> Any:
    """A Python float as a scalar of NumPy, which has a dtype and a shape as arrays do; anything else as it is."""
    return np.float64(leaf) if type(leaf) is float else leaf


def _is_floating(tree: Any) -> bool:
    return any(getattr(leaf, "dtype", np.dtype(int)).kind == "f" for _, leaf in leaves(tree))


def _row(name: str, a: Array, n: Array, shape: tuple[int, ...] | None, tol: float, floor: float) -> Row:
    """One line of the report, from the analytic and numeric derivatives along the same directions."""
    size_a, size_n = (float(np.max(np.abs(v), initial=0.0)) for v in (a, n))
    difference = np.abs(a - n)
    error = float(np.max(difference, initial=0.0))
    worst = int(np.argmax(difference)) if difference.size else 0
    if shape is None:
        where, how = f"direction {worst}", f"{a.size} random directions"
    else:
        index = tuple(int(k) for k in np.unravel_index(worst, shape)) if difference.size else ()
        where, how = f"[{', '.join(map(str, index))}]", "every entry"
    passed = bool(error <= tol * max(size_a, size_n, floor))  # False for NaN
    return Row(name, how, size_a, size_n, error, where, passed)


def _replace(tree: Any, path: str, value: Array) -> Any:
    """The tree with the leaf at ``path`` replaced."""
    names = iter([name for name, _ in leaves(tree)])
    return tree_map(lambda leaf: value if next(names) == path else leaf, tree)
