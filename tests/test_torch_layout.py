"""Weights to and from PyTorch's layout, as arrays; parity with PyTorch's numbers is in parity/."""

import numpy as np
import pytest

from minadv import gru, lstm, rnn
from minadv.base.trees import tree_map
from minadv.torch_layout import from_torch, layers_from_torch, to_torch
from tests.support.compare import assert_close, assert_same_bits
from tests.support.torch_modules import Tensor

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
    again = from_torch(cell, arrays, layer)
    assert type(again) is module.Params
    assert_same_bits(again, params)


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


@pytest.mark.parametrize(("n_in", "n_hidden"), [(2, 3), (1, 3), (1, 1)])
@pytest.mark.parametrize("cell", MODULES)
def test_nothing_is_shared_with_the_state_dict(cell, n_in, n_hidden, rng, put):
    first = put(MODULES[cell][0].init(rng, n_in, n_hidden, dtype=np.float64))
    arrays = to_torch(first)
    params = from_torch(cell, arrays)
    for a in arrays.values():
        a[...] = 7
    for kept in (first, params):
        assert not any((a == 7).any() for a in vars(kept).values())


def stack(rng, cell="lstm"):
    module = MODULES[cell][0]
    return tuple(module.init(rng, I, 3, dtype=np.float64) for I in (2, 3, 3))


@pytest.mark.parametrize("cell", MODULES)
def test_several_layers(cell, rng, put):
    cells = put(stack(rng, cell))
    arrays = to_torch(cells)
    assert len(arrays) == 12
    assert_same_bits(layers_from_torch(cell, arrays), cells)
    assert_same_bits(from_torch(cell, arrays, 1), cells[1])


def test_a_cell_whose_names_have_no_prefix_beside_another(rng, put):
    one, two, three = put(stack(rng))
    arrays = {**to_torch((one, two)), **{f"decoder.{name}": a for name, a in to_torch(three).items()}}
    assert_same_bits(layers_from_torch("lstm", arrays, prefix=""), (one, two))


def test_tensors(rng):
    [cell, *_] = stack(rng)
    assert_same_bits(from_torch("lstm", {name: Tensor(a) for name, a in to_torch(cell).items()}), cell)


def test_prefixes(rng, put):
    one, two, _ = put(stack(rng))
    within = {f"encoder.rnn.{name}": a for name, a in to_torch((one, two)).items()}
    more = {**within, "head.weight": put(np.ones((2, 3)))}
    assert_same_bits(layers_from_torch("lstm", more), (one, two))
    assert_same_bits(from_torch("lstm", more, 1, prefix="encoder.rnn."), two)
    both = {**more, **{f"decoder.{name}": a for name, a in to_torch(one).items()}}
    assert_same_bits(layers_from_torch("lstm", both, prefix="decoder."), (one,))
    with pytest.raises(
        ValueError, match=r"prefix is 'reader\.', and no name begins with it; the state dict has encoder"
    ):
        from_torch("lstm", more, prefix="reader.")
    with pytest.raises(
        ValueError, match=r"the state dict has several cells: give prefix, of 'decoder\.', 'encoder\.rnn\.'"
    ):
        from_torch("lstm", both)


@pytest.mark.parametrize("cell", MODULES)
def test_a_module_without_biases(cell, rng, put):
    arrays = to_torch(put(MODULES[cell][0].init(rng, 2, 3, dtype=np.float64)))
    params = from_torch(cell, {name: a for name, a in arrays.items() if "bias" not in name})
    assert not params.b.any()
    assert params.b.shape == arrays["bias_ih_l0"].shape
    assert params.b.dtype == np.float64
    with pytest.raises(ValueError, match="the state dict lacks bias_hh_l0; it has"):
        from_torch(cell, {name: a for name, a in arrays.items() if name != "bias_hh_l0"})


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("weight_hh_l0", (12,), r"weight_hh_l0 has shape \(12,\), expected \(nH, H\)"),
        ("weight_ih_l0", (9, 2), r"weight_ih_l0 has shape \(9, 2\), expected \(12, I\) \(weight_hh_l0 has 12 rows\)"),
        ("bias_ih_l0", (1,), r"bias_ih_l0 has shape \(1,\), expected \(12,\) \(weight_hh_l0 has 12 rows\)"),
        ("bias_hh_l0", (9,), r"bias_hh_l0 has shape \(9,\), expected \(12,\) \(weight_hh_l0 has 12 rows\)"),
    ],
)
def test_arrays_that_do_not_fit_each_other(name, shape, said, rng, put):
    arrays = to_torch(put(lstm.init(rng, 2, 3, dtype=np.float64)))
    with pytest.raises(ValueError, match=said):
        from_torch("lstm", {**arrays, name: put(np.zeros(shape))})


def test_a_state_dict_without_a_cell(put):
    with pytest.raises(ValueError, match=r"the state dict lacks weight_ih_l0, weight_hh_l0, .*; it has head.weight"):
        layers_from_torch("lstm", {"head.weight": put(np.ones((2, 3)))})


@pytest.mark.parametrize("read", [from_torch, layers_from_torch])
def test_a_module_in_the_place_of_its_state_dict(read):
    with pytest.raises(TypeError, match=r"arrays is a Tensor, expected a state dict: give module.state_dict\(\)"):
        read("lstm", Tensor(0))


def test_what_the_cells_cannot_do(rng):
    arrays = to_torch(stack(rng)[0])
    both_ways = {**arrays, **{f"{name}_reverse": a for name, a in arrays.items()}}
    for given, said in (
        (both_ways, "the state dict has weight_ih_l0_reverse: a bidirectional module, and minadv's cells read forward"),
        ({**arrays, "weight_hr_l0": np.ones((2, 3))}, "the state dict has weight_hr_l0: .* proj_size must be 0"),
    ):
        for read in (from_torch, layers_from_torch):
            with pytest.raises(ValueError, match=said):
                read("lstm", given)
