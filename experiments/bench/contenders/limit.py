r"""The limit: the matrix products and transcendental evaluations that an AdD step cannot do without, and nothing else.

Each forward pass: T products of the state with U, 3 TBH evaluations of ``exp`` and 2 TBH of ``tanh``. Each
backward pass: T products with U's transpose; with weights, one product for dU. The input's products, forward and for
dW (of the sum of both passes' dz), are made once for all passes; where the input is small it stands beside the state
instead, which costs less than reading a product from memory. The numbers are meaningless, the shapes and the places in
memory are those of the step: what is kept for backward is written once, and read once by the backward pass that would
need it. NumPy and its BLAS, as in minadv.

The same product can be asked of a BLAS in several forms, and none is the fastest at every size, so that the limit is
the best of them: an example is a row, (B, H) by (H, 4H); or a column, (4H, H) by (H, B); or a column with each gate's
product by itself.

``shared=True`` goes below that: passes that do not wait for each other run as one of twice the examples (the base pass
with the first probe, the two last backwards).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from experiments.bench.contenders.problem import Exchange, Given, Outcome, Problem
from minadv.backend import Array

Form: TypeAlias = Literal["rows", "columns", "gates"]


class Limit:
    """The contender that only does the limit's work, and has no result."""

    def __init__(self, problem: Problem, *, form: Form = "rows", shared: bool = False) -> None:
        T, I, H, B = problem.size.T, problem.size.I, problem.size.H, problem.B
        W, U = problem.weights[:2]
        self.T, self.B, self.H, self.form, self.shared, like = T, B, H, form, shared, problem.x.dtype
        self.beside = 8 * I <= H  # x stands beside the state
        n, width = (2 if shared else 1) * B, H + I if self.beside else H
        self.x, self.W = problem.x, W
        self.zx = np.empty((0 if self.beside else T * B, 4 * H), like)
        self.UW, self.U = np.concatenate([U, W] if self.beside else [U]), U
        rng = np.random.default_rng(0)
        h, a = (rng.standard_normal((T, n, size)).astype(like) for size in (width, 4 * H))  # a: the gates, then dz
        z, dh = np.empty((n, 4 * H), like), np.empty((n, H), like)
        if form != "rows":
            self.UW, self.U = np.ascontiguousarray(self.UW.T), np.ascontiguousarray(U)
            h, a, z, dh = (np.ascontiguousarray(np.swapaxes(v, -1, -2)) for v in (h, a, z, dh))
        if form == "gates":
            self.UW = self.UW.reshape(4, H, width)
        self.h, self.a, self.z, self.dh = h, a, z, dh
        self.dU, self.dW = np.empty((width, 4 * H), like), np.empty((I, 4 * H), like)

    def outcome(self, K: int, given: Given = None) -> Outcome:
        raise NotImplementedError("the limit computes nothing that could be compared")

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        self.project()
        if self.shared:
            self.forward(2)
            for k in range(K):
                if k > 0:
                    self.forward(1)
                self.backward(1)
            self.forward(1)
            self.backward(2)
            self.weights()
            self.input_weights()
            return
        for _ in range(K + 2):
            self.forward(1)
        for _ in range(K + 2):
            self.backward(1)
        for _ in range(2):
            self.weights()
        self.input_weights()

    def project(self) -> None:
        """The input's share of the pre-activations."""
        if not self.beside:
            np.matmul(self.x.reshape(self.T * self.B, -1), self.W, out=self.zx)

    def _some(self, array: Array, passes: int) -> Array:
        """The rows of an array for the examples of ``passes`` passes."""
        return array[: passes * self.B] if self.form == "rows" else array[:, : passes * self.B]

    def forward(self, passes: int) -> None:
        z = self._some(self.z, passes)
        for t in range(self.T):
            h = self._some(self.h[t], passes)
            if self.form == "rows":
                np.matmul(h, self.UW, out=z)
            else:
                np.matmul(self.UW, h, out=z.reshape(*self.UW.shape[:-1], -1))
            a, c = self._some(self.a[t], passes), h[:, : self.H] if self.form == "rows" else h[: self.H]
            three = (slice(None), slice(3 * self.H)) if self.form == "rows" else slice(3 * self.H)
            last = (slice(None), slice(3 * self.H, None)) if self.form == "rows" else slice(3 * self.H, None)
            np.exp(z[three], out=a[three])
            np.tanh(z[last], out=a[last])
            np.tanh(c, out=self._some(self.dh, passes))

    def backward(self, passes: int) -> None:
        dh = self._some(self.dh, passes)
        for t in range(self.T - 1, -1, -1):
            dz = self._some(self.a[t], passes)
            if self.form == "rows":
                np.matmul(dz, self.U.T, out=dh)
            else:
                np.matmul(self.U, dz, out=dh)

    def weights(self) -> None:
        """The product of dU: of one pass, or of two side by side, over memory read as it lies."""
        dz, h = self.a.reshape(-1, 4 * self.H), self.h.reshape(-1, self.dU.shape[0])
        np.matmul(h.T, dz, out=self.dU)

    def input_weights(self) -> None:
        """The product of dW, once: both passes read the same input."""
        if not self.beside:
            dz = self.a.reshape(-1, 4 * self.H)[: self.T * self.B]
            np.matmul(self.x.reshape(self.T * self.B, -1).T, dz, out=self.dW)
