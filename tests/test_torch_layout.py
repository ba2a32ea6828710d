"""Weights to and from PyTorch's layout, as arrays; parity with PyTorch's numbers is in parity/."""

import numpy as np
import pytest

from minadv import gru, lstm, rnn
from minadv.base.trees import tree_map
from minadv.torch_layout import from_torch, to_torch
from tests.support.compare import assert_close, assert_same_bits

MODULES = {"rnn": (rnn, 1), "lstm": (lstm, 4), "gru": (gru, 3)}


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("cell", MODULES)
def test_there_and_back(cell, layer, rng, put):
    module, blocks = MODULES[cell]
    params = put(tree_map(lambda a: rng.standard_normal(a.shape), module.init(rng, 2, 3)))
    arrays = to_torch(params, layer)
    assert {name: a.shape for name, a in arrays.items()} == {
        f"weight_ih_l{layer}": (blocks * 3, 2),
        f"weight_hh_l{layer}": (blocks * 3, 3),
        f"bias_ih_l{layer}": (blocks * 3,),
        f"bias_hh_l{layer}": (blocks * 3,),
    }
    assert_same_bits(from_torch(cell, arrays, layer), params)


@pytest.mark.parametrize("cell", MODULES)
def test_two_biases_fold_into_one(cell, rng, put):
    blocks = MODULES[cell][1]
    rows = blocks * 3
    shapes = {"weight_ih_l0": (rows, 2), "weight_hh_l0": (rows, 3), "bias_ih_l0": (rows,), "bias_hh_l0": (rows,)}
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    params = from_torch(cell, put(arrays))
    b = arrays["bias_ih_l0"] + arrays["bias_hh_l0"]
    if cell == "gru":  # the reset multiplies the recurrent bias of n, so that one stays apart
        b[6:] = arrays["bias_ih_l0"][6:]
        assert_close(params.bn, arrays["bias_hh_l0"][6:])
    assert_close(params.b, b)
    assert_same_bits(params.U, arrays["weight_hh_l0"].T)


def test_nothing_is_shared_with_the_state_dict(rng, put):
    arrays = to_torch(put(gru.init(rng, 2, 3, dtype=np.float64)))
    params = from_torch("gru", arrays)
    for a in arrays.values():
        a[...] = 7
    assert not any((a == 7).any() for a in vars(params).values())
