r"""Errors before work: each says which argument, what was given and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minadv.backend import Array, namespace
from minadv.base.schema import shown_as


def shape_text(shape: Iterable[int | str]) -> str:
    """A shape as it is written in the documentation: ``(T, B, 5)``."""
    sizes = [str(size) for size in shape]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def expect_shape(name: str, array: Array, shape: tuple[int | str, ...], because: str = "") -> None:
    """Raise ValueError unless the array has this shape; a letter in it stands for any positive size.

    ``because`` says where the expected sizes come from.
    """
    fits = array.ndim == len(shape) and all(
        size > 0 if isinstance(wanted, str) else size == wanted for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        reason = f" ({because})" if because else ""
        raise ValueError(f"{name} has shape {shape_text(array.shape)}, expected {shape_text(shape)}{reason}")


def expect_floating(name: str, array: Array, like: Array | None = None, like_name: str = "") -> None:
    """Raise TypeError unless the array is float32 or float64, and of the dtype of ``like`` where one is given."""
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32 or float64")
    if like is not None and array.dtype != like.dtype:
        raise TypeError(
            f"{name} has dtype {array.dtype} but {like_name} has {like.dtype}: convert one of them with .astype"
        )


def expect_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of the choices."""
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} is {shown_as(value)}, expected one of {', '.join(map(repr, allowed))}")


def expect_generator(rng: Any) -> None:
    """Raise TypeError, which says how to make one, for a seed in the place of a random generator."""
    if isinstance(rng, int | np.integer) or rng is np.random or isinstance(rng, np.random.RandomState):
        made = (
            f"numpy.random.default_rng({rng})" if isinstance(rng, int | np.integer) else "numpy.random.default_rng(0)"
        )
        raise TypeError(f"rng is {rng!r}, expected a numpy.random.Generator: give rng={made}")


def expect_same_module(params: Any, **records: Any) -> None:
    """Raise TypeError for a state or cache of another cell: each cell's records live in its own module."""
    for name, record in records.items():
        if record is not None and type(record).__module__ != type(params).__module__:
            actual, expected = (f"{type(r).__module__}.{type(r).__name__}" for r in (record, params))
            raise TypeError(f"{name} is a {actual}, but params is a {expected}: expected both of one cell")


def forward_inputs(
    params: Any, x: Array, state: Any, m: Array | None, valid: Array | None, *, blocks: int
) -> tuple[Any, int, int, int]:
    """Check what a cell's forward is given; returns the array module, T, B and H.

    ``blocks`` is the number of gates side by side in the columns of W, U and b.
    """
    expect_same_module(params, state=state)
    named = {f"params.{name}": value for name, value in vars(params).items()}
    states = {} if state is None else {f"state.{name}": value for name, value in vars(state).items()}
    xp = namespace(**named, x=x, **states, m=m, valid=valid)

    expect_shape("params.U", params.U, ("H", f"{blocks}H" if blocks > 1 else "H"))
    H = params.U.shape[0]
    expect_shape("params.U", params.U, (H, blocks * H), f"{blocks} blocks of H = {H} columns")
    expect_shape("params.W", params.W, ("I", blocks * H), f"params.U has H = {H}")
    expect_shape("params.b", params.b, (blocks * H,), f"params.U has H = {H}")
    if "params.bn" in named:
        expect_shape("params.bn", params.bn, (H,), f"params.U has H = {H}")
    expect_shape("x", x, ("T", "B", params.W.shape[0]), f"params.W takes I = {params.W.shape[0]} inputs")
    T, B, _ = x.shape
    for name, array in states.items():
        expect_shape(name, array, (B, H), f"x has B = {B}, params.U has H = {H}")
    if m is not None:
        expect_shape("m", m, (B, H), f"one mask per example: x has B = {B}, params.U has H = {H}")
        states["m"] = m
    if valid is not None:
        expect_shape("valid", valid, (T, B), f"x has T = {T}, B = {B}")
        if valid.dtype != bool:
            raise TypeError(f"valid has dtype {valid.dtype}, expected bool")
    expect_floating("x", x)
    for name, array in {**named, **states}.items():
        expect_floating(name, array, x, "x")
    return xp, T, B, H


def backward_inputs(params: Any, cache: Any, dh: Array | None, dstate: Any) -> tuple[Any, int, int, int]:
    """Check what a cell's backward is given; returns the array module, T, B and H."""
    expect_same_module(params, cache=cache)
    return gradient_inputs(params, cache.x, cache.h.shape[-1], dh, dstate)


def gradient_inputs(params: Any, x: Array, units: int, dh: Array | None, dstate: Any) -> tuple[Any, int, int, int]:
    """Check gradients against the pass that they go back through: its input x and its number of units."""
    expect_same_module(params, dstate=dstate)
    H = params.U.shape[0]
    T, B, I = x.shape
    if units != H:
        raise ValueError(
            f"the cache is one of {units} units, but params.U has H = {H}: was it made with these parameters?"
        )
    reason = f"the cache's x has I = {I}: was it made with these parameters?"
    expect_shape("params.W", params.W, (I, params.U.shape[1]), reason)
    dstates = {} if dstate is None else {f"dstate.{name}": value for name, value in vars(dstate).items()}
    named = {f"params.{name}": value for name, value in vars(params).items()}
    xp = namespace(**named, x=x, dh=dh, **dstates)
    for name, array in named.items():
        expect_floating(name, array, x, "the cache's x")
    if dh is not None:
        expect_shape("dh", dh, (T, B, H), "the shape of the h that forward returned")
        expect_floating("dh", dh, x, "x")
    for name, array in dstates.items():
        expect_shape(name, array, (B, H), "the shape of the state that forward returned")
        expect_floating(name, array, x, "x")
    return xp, T, B, H
