r"""The products of the LSTM's backward pass that need not be made step by step: the gradients of W, U, b and x.

.. math:: dU = \sum_t \hat h_{t-1} dz_t^\top, \qquad dW = \sum_t x_t\, dz_t^\top, \qquad db = \sum_t dz_t, \qquad
          dx_t = W\, dz_t

with an example a column, as in `minadv.fast.columns`: a product takes the columns of a chunk of steps of all passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minadv import lstm
from minadv.backend import Array, namespace
from minadv.fast.packing import goes_below, in_pieces


def chunk_length(T: int, columns: int, H: int) -> int:
    """The steps of a chunk, of T with ``columns`` columns each: enough for a fast product that outweighs the sum."""
    return -(-T // max(1, round(T * columns / max(1024, 2 * H))))


class Chunks:
    """Collects the factors of dU, dW, db and dx, from the last step to the first, and multiplies them chunk by chunk.

    ``W (I, 4H)``; ``caches`` are those of P passes of one shape, with B examples each. A compiled pass fills ``dzs``
    and ``entered`` itself instead of calling `add`, and calls `multiply` after each chunk.
    """

    def __init__(self, W: Array, caches: Sequence[Any], *, weights: bool, inputs: bool) -> None:
        x, slot, P, xp = caches[0].x, caches[0].slot, len(caches), namespace(W)
        (T, B, I), H = x.shape, W.shape[1] // 4
        self._W, self._xs, self._size, self._T = W, [cache.x for cache in caches], (I, H, P, B), T
        self._C = chunk_length(T, P * B, H)
        self.dzs = slot.take("dzs", (4, H, self._C, P, B), x)
        self.entered = slot.take("entered", (H + I + 1, self._C, P, B), x) if weights else None  # states, x and 1
        if self.entered is not None:
            self.entered[-1] = 1
        self._below = goes_below(I, H)  # U, W and b in one product
        self._joint = not self._below and P > 1 and all(other is x for other in self._xs)
        self.dx = [xp.empty_like(x) for _ in caches] if inputs else None  # (T, B, I) a pass
        self.dparams: Array | None = None  # (H+I+1, 4H), the gradient of U above W above b

    def add(self, t: int, dz: Array, hhat: Array) -> None:
        """Step t: ``dz (4, H, P, B)``, and the masked states ``hhat (H, P, B)`` that entered it."""
        k, (_, H, _, _) = (t - 1) % self._C, self._size  # the step is number k of its chunk
        self.dzs[:, :, k] = dz
        if self.entered is not None:
            self.entered[:H, k] = hhat
            for n, x in enumerate(self._xs[:1] if self._joint else self._xs):
                self.entered[H:-1, k, n] = x[t - 1].T
        if k == 0:  # the chunk of the steps t .. t + C - 1 is whole
            self.multiply(t - 1)

    def multiply(self, first: int) -> None:
        """Multiply the chunk that begins after ``first`` steps, whose columns are in ``dzs`` and ``entered``."""
        (I, H, P, B), xp, size = self._size, namespace(self._W), min(self._C, self._T - first)
        dzs = self.dzs[:, :, :size]
        chunk = dzs.reshape(4 * H, -1)
        if self.dx is not None:
            dx = (self._W @ chunk).reshape(I, size, P, B)
            for n, whole in enumerate(self.dx):
                whole[first : first + size] = dx[:, :, n].transpose(1, 2, 0)
        if self.entered is None:
            return
        entered, share = self.entered[:, :size], xp.empty((H + I + 1, 4 * H), chunk.dtype)
        columns = entered.reshape(H + I + 1, -1)
        if self._below:
            xp.matmul(columns, chunk.T, out=share)
        else:
            xp.matmul(columns[:H], chunk.T, out=share[:H])
            if self._joint:  # the passes have one x: its product is with the sum of their dz
                summed = sum((dzs[..., n, :] for n in range(2, P)), start=dzs[..., 0, :] + dzs[..., 1, :])
                columns, chunk = entered[:, :, 0].reshape(H + I + 1, -1), summed.reshape(4 * H, -1)
            in_pieces(columns[H:], chunk.T, out=share[H:], piece=192)
        self.dparams = share if self.dparams is None else xp.add(self.dparams, share, out=self.dparams)


def split(dparams: Array | None, H: int) -> lstm.Params | None:
    """The gradient of the parameters from that of U above W above b."""
    return None if dparams is None else lstm.Params(W=dparams[H:-1], U=dparams[:H], b=dparams[-1])
