r"""The weights of an LSTM, packed as its steps multiply with them, and the products with its inputs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minadv.backend import Array, is_host, namespace
from minadv.fast import threads
from minadv.fast.engines import Inputs
from minadv.fast.workspace import Slot, Workspace


@dataclass(frozen=True)
class Packed:
    """The transposed weights; the rows of the logistic gates are negated, as `minadv.fast.elementwise` takes them."""

    UWb: Array  # (4H, H+n+1): U, W and b side by side; n = I if `goes_below`, else 0
    W: Array | None  # (4H, I), if n = 0


def packed(params: Any, work: Workspace | None) -> Packed:
    """The weights as the steps need them; with a workspace, made once for all passes of a scope."""
    return pack(params, Slot()) if work is None else work.once(params, pack)


def pack(params: Any, slot: Slot) -> Packed:
    """Transpose the weights, into buffers of the slot."""
    H, I = params.U.shape[0], params.W.shape[0]
    below = goes_below(I, H)
    parts = [params.U, params.W, params.b[None]] if below else [params.U, params.b[None]]
    packed = Packed(_transposed(slot, "UWb", *parts), None if below else _transposed(slot, "W", params.W))
    for rows in (packed.UWb, packed.W):
        if rows is not None:
            rows[: 2 * H] *= -1  # i and f
            rows[3 * H :] *= -1  # o
    return packed


def goes_below(I: int, H: int) -> bool:
    """Whether x_t is small enough to stand below the masked state in one column: one product then serves both."""
    return 8 * I <= H


def by_gate(H: int, columns: Array) -> bool:
    """Whether a step is multiplied gate by gate, which is faster where BLAS has kernels for small products."""
    return is_host(columns) and H * columns.size <= 1_000_000 and _has_small_products()


@functools.cache
def _has_small_products() -> bool:
    """Whether BLAS has kernels for small products, of up to a million multiplications: OpenBLAS has, with AVX-512."""
    return any(lib.get("architecture") in {"SkylakeX", "Cooperlake", "SapphireRapids"} for lib in threads.libraries())


KEPT = 2**26
"""The largest product with an input, in bytes, that a workspace keeps for later passes."""


def worth_keeping(given: Inputs, passes: Sequence[Inputs]) -> bool:
    """Whether the product with a pass's x should be kept for later passes: its x lasts, and several passes share it.

    Passes that share an x now are those of a search, which runs more passes over it in the same step.
    """
    return given.lasting and sum(other.x is given.x for other in passes) > 1


def input_products(weights: Packed, x: Array, *, out: Array, keep: bool, work: Workspace | None) -> Array:
    """``W x_t`` for every step of ``x (T, B, I)``, in ``out (T, 4, H, B)`` or in the workspace, if that keeps it.

    With ``keep`` the workspace keeps the product, unless it is large, for later passes over the same x.
    """
    assert weights.W is not None
    W, flat, what = weights.W, (out.shape[0], -1, out.shape[3]), f"x W by {id(weights)}"

    def make(x: Array, out: Array) -> Array:
        project(W, x, out=out.reshape(flat))
        return out

    if work is None or out.nbytes > KEPT or not (keep or work.has_made(x, what)):
        return make(x, out)
    return work.once(x, lambda x, slot: make(x, slot.take("xW", out.shape, out)), what)


def project(W: Array, x: Array, *, out: Array) -> None:
    """``W x_t`` for every step of ``x (T, B, I)``, into ``out (T, 4H, B)``.

    On the host a product takes the steps of about a hundred columns: with fewer, a BLAS spends its time on rearranging
    W for each; with more, on memory. A GPU does all steps at once.
    """
    (T, B, I), xp = x.shape, namespace(x)
    if not is_host(x):
        xp.matmul(W, x.transpose(0, 2, 1), out=out)
        return
    G = max(1, 96 // B)  # steps in a product
    for t in range(0, T, G):
        columns = x[t : t + G].reshape(-1, I).T
        product = out[t] if G == 1 else xp.empty((len(W), columns.shape[1]), x.dtype)
        in_pieces(W, columns, out=product, piece=64)
        if G > 1:
            out[t : t + G] = product.reshape(len(W), -1, B).transpose(1, 0, 2)


def in_pieces(left: Array, right: Array, *, out: Array, piece: int) -> None:
    """``left @ right`` into ``out``; on the host as a sum of products of at most ``piece`` terms, which round less.

    A BLAS adds up hundreds of terms in one register. In a step the products with the inputs would round most: their
    terms are large and of either sign.
    """
    xp, K = namespace(left), left.shape[1]
    pieces = -(-K // piece) if is_host(left) else 1
    first, *others = (slice(K * n // pieces, K * (n + 1) // pieces) for n in range(pieces))
    xp.matmul(left[:, first], right[first], out=out)
    share = xp.empty_like(out) if others else None
    for cut in others:
        out += xp.matmul(left[:, cut], right[cut], out=share)


def _transposed(slot: Slot, name: str, *parts: Array) -> Array:
    """The transpose of matrices that stand above each other; made by strips of 16 rows, which fit the cache."""
    rows = sum(part.shape[0] for part in parts)
    out = slot.take(name, (parts[0].shape[1], rows), parts[0])
    done = 0
    for part in parts:
        for first in range(0, part.shape[0], 16):
            strip = part[first : first + 16]
            out[:, done + first : done + first + strip.shape[0]] = strip.T
        done += part.shape[0]
    return out
