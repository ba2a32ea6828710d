r"""A cost model of data-parallel training: compute against Allreduce, fitted to measurements and carried further.

A step of AdD on T time steps, of whose B examples a rank has b, and whose gradient has n bytes:

.. math:: t(T, b, N, n) = c_0 + T (c_1 + c_2 b) + t_{sum}(N, n), \qquad
          t_{sum}(N, n) = 2 \lceil \log_2 N \rceil\, \alpha + \frac{2 (N - 1)}{N} \frac{n}{\beta}

:math:`c_0` is what every rank does whatever its share (the update of all parameters), :math:`c_1` what every time step
costs (reading the recurrent weights, calls), :math:`c_2` the work for an example. :math:`\alpha` is the latency of a
message and :math:`\beta` the bandwidth of a link; the second formula is that of a reduce-scatter and an all-gather, in
each of which a rank sends and receives :math:`(N-1)/N` of the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize

SWEEPS = 6
"""Sweeps over the time steps in a step of AdD, K = 1: base, probe and adversarial pass, map, two backward passes."""

ONE_LAUNCH, LAUNCHES, BESIDE = 128, 2, 100
"""Units up to which a pass is one launch on a GPU, launches of a time step and pass beyond that, and launches of a step
whatever its length: tests count all three."""

PASSES = 3 + 1 + 2 * 2
"""The work of these sweeps in forward passes: a backward pass with weight gradients is two, the map's only one."""


@dataclass(frozen=True)
class Size:
    """One of the paper's tasks: steps, examples, and the layers as pairs (inputs, units)."""

    name: str
    T: int
    B: int
    layers: tuple[tuple[int, int], ...]
    n_out: int  # classes or words
    n_words: int = 0  # of the embedding, 0 without one
    n_relu: int = 0  # units between the last state and the softmax
    every_step: bool = False  # a softmax at each step, tied to the embedding, instead of one at the last

    @property
    def n_params(self) -> int:
        recurrent = sum(4 * H * (I + H + 1) for I, H in self.layers)
        embedding = self.n_words * self.layers[0][0]
        if self.every_step:
            return recurrent + embedding + self.n_out
        last, relu = self.layers[-1][1], self.n_relu
        hidden = (last + 1) * relu if relu else 0
        return recurrent + embedding + hidden + ((relu or last) + 1) * self.n_out

    @property
    def nbytes(self) -> int:
        """Bytes of the gradient, in single precision."""
        return 4 * self.n_params

    def flops(self, b: float) -> float:
        """Floating-point operations of the matrix products of a time step, all passes, for ``b`` examples."""
        products = sum(4 * H * (I + H) for I, H in self.layers)
        if self.every_step:
            products += self.layers[-1][1] * self.n_out
        return 2.0 * PASSES * products * b


@dataclass(frozen=True)
class Compute:
    """The constants of a step's time without the Allreduce: c0 + T (c1 + c2 b) seconds."""

    c0: float
    c1: float
    c2: float

    def seconds(self, T: int, b: float) -> float:
        return self.c0 + T * (self.c1 + self.c2 * b)


@dataclass(frozen=True)
class Network:
    """The constants of an Allreduce; ``copies`` is the bandwidth between device and host, if buffers are copied."""

    latency: float  # seconds a message
    bandwidth: float  # bytes a second
    copies: float = math.inf

    def seconds(self, N: int, nbytes: float) -> float:
        if N == 1:
            return 0.0
        rounds, share = 2 * math.ceil(math.log2(N)), 2 * (N - 1) / N
        return rounds * self.latency + share * nbytes / self.bandwidth + 2 * nbytes / self.copies


def fit_compute(points: Sequence[tuple[int, int, float]]) -> Compute:
    """The three constants from measurements (T, b, seconds), none negative, by least squares of relative errors."""
    T, b, t = (np.asarray(column, dtype=float) for column in zip(*points, strict=True))
    rows = np.stack([np.ones_like(T), T, T * b], axis=1) / t[:, None]
    found, _ = scipy.optimize.nnls(rows, np.ones_like(t))
    return Compute(*map(float, found))


def fit_network(N: int, points: Sequence[tuple[int, float]]) -> Network:
    """Latency and bandwidth from measurements (bytes, seconds) on N ranks, by least squares of relative errors."""
    n, t = (np.asarray(column, dtype=float) for column in zip(*points, strict=True))
    rounds, share = 2 * math.ceil(math.log2(N)), 2 * (N - 1) / N
    rows = np.stack([np.full_like(n, rounds), share * n], axis=1) / t[:, None]
    (latency, slowness), _ = scipy.optimize.nnls(rows, np.ones_like(t))
    return Network(float(latency), float(1 / slowness) if slowness else math.inf)


@dataclass(frozen=True)
class Gpu:
    """What is assumed of a GPU: its sustained rate, its memory, and what a time step takes at least."""

    flops: float  # a second, in the matrix products
    launch: float  # seconds of the host to start a kernel or a matrix product
    loop: float  # seconds that a time step takes within a kernel that is a whole pass
    memory: float  # bytes a second

    def compute(self, size: Size, b: float) -> Compute:
        """Starting kernels and computing overlap, so that a time step takes the longer of the two.

        A layer of at most `ONE_LAUNCH` units is one launch a pass, whose time loop the device runs by itself; a larger
        one has `LAUNCHES` a time step and pass.
        """
        least = sum(self.loop if H <= ONE_LAUNCH else LAUNCHES * self.launch for _, H in size.layers)
        step = max(SWEEPS * least, size.flops(b) / self.flops)
        return Compute(BESIDE * self.launch + 10 * size.nbytes / self.memory, step, 0.0)


@dataclass(frozen=True)
class Cluster:
    """``count`` equal machines or GPUs; without ``gpu`` each computes as the one that was measured."""

    name: str
    count: int
    network: Network
    gpu: Gpu | None = None


@dataclass(frozen=True)
class Forecast:
    """A step on ``N`` of a cluster's machines, which share the paper's batch or have a batch of that size each."""

    size: str
    cluster: str
    N: int
    alone: float  # seconds on one
    compute: float  # seconds, sharing
    sum: float  # seconds

    @property
    def speedup(self) -> float:
        """How many times faster a step is when the ranks share the paper's batch."""
        return self.alone / (self.compute + self.sum)

    @property
    def efficiency(self) -> float:
        """Where each has a batch of the paper's size: the part of the time that is not spent on the sum."""
        return self.alone / (self.alone + self.sum)


def forecast(size: Size, cluster: Cluster, measured: Compute) -> Forecast:
    """The step that the cost model forecasts, with no more ranks than the batch has examples."""
    N = min(cluster.count, size.B)

    def seconds(b: int) -> float:
        compute = measured if cluster.gpu is None else cluster.gpu.compute(size, b)
        return compute.seconds(size.T, b)

    share = math.ceil(size.B / N)  # examples of the rank that has most
    return Forecast(
        size.name, cluster.name, N, seconds(size.B), seconds(share), cluster.network.seconds(N, size.nbytes)
    )
