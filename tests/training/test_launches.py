"""What a training step of adversarial dropout asks of a GPU, counted on an emulated one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import minadv
from minadv.models.classifier import Classifier
from minadv.regularizers import AdD
from minadv.searches import Greedy
from minadv.tasks.images.task import Classify
from minadv.training import loop
from minadv.training.parallel.workers import OneWorker
from tests.support import cuda
from tests.support.problems import sequences

SCORED = AdD(budgets=2, search=Greedy(K=1))
"""Runs the network once more under the mask that it found, to keep the best (``keep="best"``)."""

METHODS = {"default": AdD(budgets=2), "scored": SCORED}
"""The default takes the mask that the search found last."""

MOST_LAUNCHES = 120
"""Of a step, kernels and products together."""


def counted(put, cell, T, H, regularizer, *, padded=False):
    """What the second step asks for: kernels are compiled by then, and buffers taken."""
    data = sequences(np.float32, n=6, T=T)
    if padded:
        data = replace(data, train=replace(data.train, lengths=T - np.arange(6)))
    data = replace(data, train=put(data.train), valid=put(data.valid), test=put(data.test))
    model = Classifier(2, H, 3, cell=cell)
    task, recipe = Classify(model, data, regularizer, batch_size=2, seed=0), loop.Recipe(steps=9)
    state, workers = put(loop.start(task, recipe)), OneWorker(task)
    state, _ = loop.advance(task, recipe, state, workers)
    with cuda.counters().counting(under=str(Path(minadv.__file__).parent)) as seen:
        loop.advance(task, recipe, state, workers)
    return seen


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_step_has_as_many_launches_for_any_length(cell, method, padded, device, put):
    cuda.needs_gpu(device)
    few, many = (counted(put, cell, T, 100, METHODS[method], padded=padded) for T in (16, 32))
    launches = [seen.totals["kernel"] + seen.totals["blas"] for seen in (few, many)]
    assert launches[0] == launches[1]
    assert launches[0] <= MOST_LAUNCHES, few.where["kernel"]
    assert few.totals["sync"] <= 2, few.where["sync"]


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_many_units_take_two_launches_a_time_step_and_pass(cell, device, put):
    """Base and probe together, the masks found and the best of them, back through the probe, and back through both."""
    cuda.needs_gpu(device)
    few, many = (counted(put, cell, T, 132, SCORED) for T in (8, 16))
    more = many.totals - few.totals
    assert (more["kernel"], more["blas"]) == (8 * 5, 8 * 5)
    assert not more["alloc"] and not more["sync"] and not more["D2H"]
