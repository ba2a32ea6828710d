r"""The limit: the matrix products and transcendental evaluations that an AdD step cannot do without, and nothing else.

Each forward pass: T products (B, H) by (H, 4H), one (TB, I) by (I, 4H), 5 TBH evaluations of ``tanh`` (four gates and
the cell). Each backward pass: T products (B, 4H) by (4H, H); with weights, one product each for dU and dW. The numbers
are meaningless, the shapes and the places in memory are those of the step: what is kept for backward is written once,
and read once by the backward pass that would need it. NumPy and its BLAS, as in minadv.

``shared=True`` goes below that: what two passes have in common is done once (the input's product), and passes that do
not wait for each other run as one of twice the rows (the base pass with the first probe, the two last backwards).
"""

from __future__ import annotations

import numpy as np

from experiments.bench_contenders.problem import Exchange, Given, Outcome, Problem


class Limit:
    """The contender that has no result."""

    def __init__(self, problem: Problem, *, shared: bool = False) -> None:
        T, I, H, B = problem.size.T, problem.size.I, problem.size.H, problem.B
        self.T, self.B, self.shared = T, B, shared
        self.W, self.U = problem.weights[:2]
        passes, like = 2 if shared else 1, problem.x.dtype
        rows = passes * B
        self.x = problem.x
        self.zx = np.empty((T, B, 4 * H), like)
        self.h = np.random.default_rng(0).standard_normal((T, rows, H)).astype(like)
        self.a = np.random.default_rng(1).standard_normal((T, rows, 4 * H)).astype(like)  # gates, then dz
        self.tanh_c = np.empty((T, rows, H), like)
        self.z, self.dh = np.empty((rows, 4 * H), like), np.empty((rows, H), like)
        self.dU, self.dW = np.empty((H, 4 * H), like), np.empty((I, 4 * H), like)
        self.x_rows = np.concatenate([problem.x] * passes, axis=1)  # (T, rows, I)

    def outcome(self, K: int, given: Given = None) -> Outcome:
        raise NotImplementedError("the limit computes nothing that could be compared")

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        if self.shared:
            self.project()
            self.forward(2)
            for k in range(K):
                if k > 0:
                    self.forward(1)
                self.backward(1)
            self.forward(1)
            self.backward(2)
            self.weights()
            return
        for _ in range(K + 2):
            self.project()
            self.forward(1)
        for _ in range(K + 2):
            self.backward(1)
        for _ in range(2):
            self.weights()

    def project(self) -> None:
        """The input's share of the pre-activations."""
        np.matmul(self.x.reshape(self.T * self.B, -1), self.W, out=self.zx.reshape(self.T * self.B, -1))

    def forward(self, passes: int) -> None:
        rows = slice(0, passes * self.B)
        for t in range(self.T):
            np.matmul(self.h[t, rows], self.U, out=self.z[rows])
            np.tanh(self.z[rows], out=self.a[t, rows])
            np.tanh(self.h[t, rows], out=self.tanh_c[t, rows])

    def backward(self, passes: int) -> None:
        rows = slice(0, passes * self.B)
        for t in range(self.T - 1, -1, -1):
            np.matmul(self.a[t, rows], self.U.T, out=self.dh[rows])

    def weights(self) -> None:
        """The products of dU and dW: of one pass, or of two side by side."""
        flat_dz = self.a.reshape(-1, self.a.shape[-1])
        np.matmul(self.h.reshape(-1, self.h.shape[-1]).T, flat_dz, out=self.dU)
        np.matmul(self.x_rows.reshape(-1, self.x.shape[-1]).T, flat_dz, out=self.dW)
