r"""The flip and what is around it on a device: a block takes an example, and one launch is the whole function.

Imported only once there are CuPy arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import cupy
import numpy as np

from minadv import flip as definition
from minadv import influence, masks
from minadv.backend import Array
from minadv.base import readings, shared_draws
from minadv.base.shared_draws import Rng
from minadv.fast.device_source import FLIP_THREADS, FLIP_UNITS, PRECISIONS, RULES, source


@functools.cache
def kernel(name: str, dtype: str, other: str = "float64") -> Any:
    """A kernel of this file for floating arrays of a dtype; ``other`` is that of the distances."""
    return cupy.RawKernel(source("flip", T=dtype, D=other), f"minadv_{name}")


def _fit(*arrays: Any) -> bool:
    """Whether a kernel takes these arrays: on the device, (B, H), of one shape and one dtype that it knows."""
    first = arrays[0]
    return all(isinstance(a, cupy.ndarray) and a.shape == first.shape and a.dtype == first.dtype for a in arrays) and (
        first.ndim == 2 and str(first.dtype) in PRECISIONS and first.size > 0
    )


def flip(
    eps: Array,
    im: Array,
    eps0: Array,
    budget: int,
    *,
    rule: str = "strict",
    allow_unflip: bool = True,
    norm: str = "count",
    variant: str = "smnist",
) -> Any:
    """See `minadv.flip.flip`; what is wrong with the arrays is raised when the device is next read."""
    known = rule in RULES and norm in ("count", "l2") and variant in ("smnist", "text") and type(budget) is int
    if not (known and _fit(eps, im, eps0) and 0 <= budget <= eps.shape[1] <= FLIP_UNITS):
        return NotImplemented
    limit = {
        "strict": budget,
        "paper": budget if norm == "count" else budget * budget,
        "authors": budget + 1 if variant == "smnist" else max(budget, 1),
    }[rule]
    options: dict[str, Any] = {"rule": rule, "allow_unflip": allow_unflip, "norm": norm, "variant": variant}
    (B, H), out = eps.shape, cupy.empty(eps.shape, eps.dtype)

    def raise_it() -> None:
        definition.flip.__wrapped__(eps, im, eps0, budget, **options)  # type: ignore[attr-defined]

    eps, im, eps0 = (cupy.ascontiguousarray(a) for a in (eps, im, eps0))
    with readings.word(eps, raise_it) as wrong:
        arrays = (eps, im, eps0, out, wrong, np.int32(H), np.int32(RULES.index(rule)), np.int64(limit))
        threads = min(-(-H // 32) * 32, FLIP_THREADS)
        kernel("flip", str(eps.dtype))(
            (B,), (threads,), (*arrays, np.int32(allow_unflip), np.int32(variant == "smnist"))
        )
    return out


def one_flip(rng: Rng, eps0: Array) -> Any:
    """See `minadv.masks.one_flip`; the units are drawn on the host."""
    if not _fit(eps0):
        return NotImplemented
    B, H = eps0.shape
    units = cupy.asarray(np.asarray(shared_draws.rows(rng, lambda g, n: g.integers(H, size=n), B)), dtype=np.int64)
    eps0, out = cupy.ascontiguousarray(eps0), cupy.empty(eps0.shape, eps0.dtype)
    with readings.word(eps0, lambda: masks.expect_binary("eps0", eps0)) as wrong:
        arguments = (eps0, units, out, wrong, np.int32(H), np.int64(eps0.size))
        kernel("one_flip", str(eps0.dtype))((-(-eps0.size // 128),), (128,), arguments)
    return out


def agree(features0: Array, features1: Array, d: Array) -> Any:
    """See `minadv.influence.agree`."""
    if not all(isinstance(a, cupy.ndarray) for a in (features0, features1, d)):
        return NotImplemented
    alike = features0.shape == features1.shape and features0.dtype == features1.dtype and features0.ndim == 3
    if not (alike and str(features0.dtype) in PRECISIONS and str(d.dtype) in PRECISIONS and features0.size):
        return NotImplemented
    (N, B, F), same, out = features0.shape, cupy.empty(len(d), bool), cupy.empty(len(d), d.dtype)
    f0, f1, d = (cupy.ascontiguousarray(a) for a in (features0, features1, d))
    rounding = features0.dtype.type(influence.ROUNDING * float(np.finfo(features0.dtype).eps))
    sizes = (np.int32(N), np.int32(B), np.int32(F), rounding)
    kernel("agree", str(features0.dtype), str(d.dtype))((B,), (128,), (f0, f1, d, same, out, *sizes))
    return same, out


def zero_maps(im: Mapping[str, Array], same: Array) -> Any:
    """See `minadv.influence.zero_maps`: a launch for each site."""
    if not (im and isinstance(same, cupy.ndarray) and all(_fit(values) for values in im.values())):
        return NotImplemented
    maps, influential = {}, cupy.zeros(len(same), bool)
    for name, values in im.items():
        maps[name] = cupy.empty(values.shape, values.dtype)
        arguments = (cupy.ascontiguousarray(values), same, maps[name], influential)
        sizes = (np.int32(values.shape[1]), np.int64(values.size))
        kernel("zero_map", str(values.dtype))((-(-values.size // 128),), (128,), (*arguments, *sizes))
    return maps, ~influential
