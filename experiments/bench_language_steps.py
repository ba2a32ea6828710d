r"""The training steps that `bench_language` measures: minadv's, as ``minadv train`` makes them, and PyTorch's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.bench_contenders import memory
from minadv import threads
from minadv.models.language import LanguageModel
from minadv.regularizers import EL, FD, VD, AdD, Plain, Regularizer
from minadv.training import folders
from minadv.training.clip import Clip
from minadv.training.language_task import LanguageTask
from minadv.training.optimizers import SGD

LR = 1.0


@dataclass(frozen=True)
class Size:
    """A model and a batch."""

    name: str
    hidden: tuple[int, ...]
    T: int
    dropouts: tuple[float, float, float, float, float]  # words, inputs, between layers, outputs, recurrent weights
    every: int = 1
    B: int = 20
    V: int = 10_000
    delta: float = 0.06

    def model(self) -> LanguageModel:
        names = ("word_dropout", "input_dropout", "hidden_dropout", "output_dropout", "dropconnect")
        return LanguageModel(self.V, self.hidden[-1], self.hidden, **dict(zip(names, self.dropouts, strict=True)))  # type: ignore[arg-type]

    def __str__(self) -> str:
        compared = f", predictions compared at one step in {self.every}" if self.every > 1 else ""
        units = "-".join(map(str, self.hidden))
        return f"{self.name}: {units}, {self.B} columns of {self.T} words, V = {self.V:,}{compared}"


SIZES = {
    size.name: size
    for size in (
        Size("ptb", (1150, 1150, 400), 70, (0.1, 0.4, 0.3, 0.4, 0.5)),
        Size("ptb-small", (200, 200), 35, (0.05, 0.2, 0.15, 0.2, 0.2)),
        Size("ptb-small as in table3", (200, 200), 35, (0.05, 0.2, 0.15, 0.2, 0.2), every=7),
    )
}

METHODS: dict[str, Regularizer] = {
    "none": Plain(),
    "VD": VD(p=0.1),
    "EL": EL(p=0.1),
    "FD": FD(p=0.1, distance="logit2"),
    "AdD K=1": AdD(delta=0.06, init="base", share_noise=False),
    "AdD K=2": AdD(delta=0.06, init="base", share_noise=False, adv_steps=2),
    "AdD reselect": AdD(delta=0.06, init="base", share_noise=False, adv_steps=2, search="reselect"),
}
RIVALS = {"none": ("PyTorch LSTM", "PyTorch cell"), "AdD K=1": ("PyTorch LSTM", "PyTorch cell")}


def measure(size: Size, method: str, contender: str, rounds: int, workers: int | None = None) -> dict[str, Any]:
    """Seconds of each step and the peak of memory in MB, in this process: call it in a fresh one."""
    imported = memory.resident()
    step, close = (_ours if contender == "minadv" else _torch)(size, method, contender, workers)
    try:
        step(0)  # makes the buffers
        memory.reset([os.getpid()])
        took = []
        for n in range(1, rounds + 1):
            started = time.perf_counter()
            step(n)
            took.append(time.perf_counter() - started)
        return {"seconds": took, "peak": memory.peak([os.getpid()]), "imported": imported}
    finally:
        close()


def _ours(size: Size, method: str, contender: str, workers: int | None) -> tuple[Callable[[int], Any], Any]:
    tokens = text(size, 4)
    task = LanguageTask(
        size.model(),
        tokens,
        tokens[:100],
        tokens[:100],
        METHODS[method],
        batch_size=size.B,
        bptt=size.T,
        random_lengths=False,
        every=size.every,
    )
    n = folders.choose_workers(task, workers)
    params, held = task.init(), ExitStack()
    team = held.enter_context(folders.team_of(task, n))
    optimizer, clip = SGD(LR), Clip(0.25)
    state = {"params": params, "carry": task.first_carry()}

    def step(number: int) -> None:
        done = team.step(state["params"], number % task.per_epoch, weight=1.0, carry=state["carry"])
        grads, _ = clip(done.grads)
        state["params"], _ = optimizer.step(state["params"], grads, optimizer.init(params))
        state["carry"] = done.carry

    return step, held.close


def _torch(size: Size, method: str, contender: str, workers: int | None) -> tuple[Callable[[int], Any], Any]:
    import torch

    from experiments import bench_language_torch as rival

    torch.set_num_threads(workers or threads.cores())
    torch.set_flush_denormal(True)
    params = size.model().init(np.random.default_rng(0))
    assert params.E is not None and params.b is not None
    made = [torch.tensor(w).requires_grad_() for c in params.cells if c is not None for w in (c.W, c.U, c.b)]
    cells = [(made[n], made[n + 1], made[n + 2]) for n in range(0, len(made), 3)]
    net = rival.Net(torch.tensor(params.E).requires_grad_(), cells, torch.tensor(params.b).requires_grad_())
    tokens = torch.tensor(text(size, 4).astype(np.int64))
    columns = tokens[: len(tokens) // size.B * size.B].reshape(size.B, -1).t()  # (length, B)
    budgets = [int(size.delta * H + 1e-9) for H in size.hidden] if method != "none" else []
    state = [(torch.zeros(size.B, H), torch.zeros(size.B, H)) for H in size.hidden]

    def step(number: int) -> None:
        first = number * size.T % (len(columns) - size.T - 1)
        noise = rival.draw(net, size.dropouts, size.B)
        second = None
        if budgets:
            words = rival.draw(net, (size.dropouts[0], 0, 0, 0, 0), size.B).words
            second = rival.Masks(words, noise.inputs, noise.outputs, noise.U)
        grads, _, last = rival.gradients(
            net,
            columns[first : first + size.T],
            columns[first + 1 : first + size.T + 1],
            noise,
            state,
            second=second,
            budgets=budgets,
            fused=contender == "PyTorch LSTM",
        )
        state[:] = last
        rival.update(net, grads, LR)

    return step, lambda: None


def text(size: Size, windows: int) -> Any:
    """Words drawn by Zipf's law, as many as so many windows hold."""
    chances = 1 / np.arange(1, size.V + 1)
    drawn = np.random.default_rng(0).choice(size.V, size.B * (size.T * windows + 1), p=chances / chances.sum())
    return drawn.astype(np.int32)
