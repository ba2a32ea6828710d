"""A classifier from a module of PyTorch: what is read, and what is refused. parity/ has the same of PyTorch's own."""

import numpy as np
import pytest

from minadv import gru, lstm, rnn
from minadv.models import Batch, Classifier
from minadv.torch_layout import classifier_from_torch
from tests.support.compare import assert_same_bits
from tests.support.torch_modules import GRU, LSTM, RNN, Linear, Module

CELLS = {"rnn": (rnn, RNN), "lstm": (lstm, LSTM), "gru": (gru, GRU)}


def layers(rng, cell="lstm", n=1, H=4):
    module = CELLS[cell][0]
    return tuple(module.init(rng, I, H, dtype=np.float64) for I in (2, *[H] * (n - 1)))


def net(rng, C=3, *, bias=True, **more):
    b = rng.standard_normal(C) if bias else None
    return Module(reader=LSTM(layers(rng)), answer=Linear(rng.standard_normal((4, C)), b), **more)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_and_a_softmax(cell, n, rng):
    """The cell may lie deeper than the softmax, and parts without weights, or a bias that is not there, are no harm."""
    cells, V, b = layers(rng, cell, n), rng.standard_normal((4, 3)), rng.standard_normal(3)
    reader = CELLS[cell][1](cells)
    made = classifier_from_torch(Module(encoder=Module(rnn=reader), dropout=Module(), answer=Linear(V, b)))
    assert made[0] == cell
    assert_same_bits(made[1:], (cells, V, b))
    _, _, _, none = classifier_from_torch(Module(reader=reader, answer=Linear(V.astype(np.float32))))
    assert_same_bits(none, np.zeros(3, np.float32))


def test_one_output_is_the_two_class_case(rng):
    V, b = rng.standard_normal((4, 1)), rng.standard_normal(1)
    module = Module(reader=LSTM(layers(rng)), answer=Linear(V, b))
    _, _, two, pair = classifier_from_torch(module)
    assert_same_bits((two, pair), (np.stack([0 * V[:, 0], V[:, 0]], axis=1), np.array([0, b[0]])))
    model, params = Classifier.from_torch(module)
    features, _, _ = model.body(params, Batch(rng.standard_normal((5, 3, 2))), masks={}, noise=None)
    assert model.logits(params, features).shape == (1, 3, 2)


def test_zeros_of_the_first_class_whatever_the_weights(rng):
    V, b = np.array([[0.0], [1], [2], [3]]), np.zeros(1)
    _, _, two, pair = classifier_from_torch(Module(reader=LSTM(layers(rng)), answer=Linear(V, b)))
    assert_same_bits((two, pair), (np.array([[0.0, 0], [0, 1], [0, 2], [0, 3]]), np.zeros(2)))


@pytest.mark.parametrize(("H", "C"), [(4, 3), (1, 3)])
def test_nothing_is_shared_with_the_module(H, C, rng):
    module = Module(reader=LSTM(layers(rng, H=H)), answer=Linear(rng.standard_normal((H, C)), rng.standard_normal(C)))
    _, _, V, b = classifier_from_torch(module)
    for tensor in module.state_dict().values():
        tensor.a[...] = 7
    assert not (V == 7).any()
    assert not (b == 7).any()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda rng: Linear(np.ones((4, 3))), "Linear has 0 modules RNN, LSTM or GRU, expected one"),
        (lambda rng: net(rng, more=GRU(layers(rng, "gru"))), "Module has 2 modules RNN, LSTM or GRU, expected one"),
        (lambda rng: LSTM(layers(rng)), "LSTM has 0 modules Linear that take H = 4 inputs, expected one"),
        (lambda rng: net(rng, more=Linear(np.ones((4, 2)))), "Module has 2 modules Linear that take H = 4 inputs"),
        (
            lambda rng: Module(reader=RNN(layers(rng, "rnn"), nonlinearity="relu"), answer=Linear(np.ones((4, 3)))),
            "reader has the nonlinearity 'relu', expected 'tanh'",
        ),
        (
            lambda rng: net(rng, more=Linear(np.ones((5, 2)))),
            r"Module has more.weight \(Linear\) beside reader and answer",
        ),
        (lambda rng: net(rng, norm=Module(deep=Module({"w": np.ones(2)}))), r"has norm.deep.w \(Module\) beside"),
    ],
)
def test_modules_that_are_no_classifier(made, said, rng):
    with pytest.raises(ValueError, match=said):
        classifier_from_torch(made(rng))


def test_a_parameter_of_the_module_itself(rng):
    class Scaled(Module):
        pass

    module = net(rng)
    scaled = Scaled({"scale": np.ones(1)}, **module.parts)
    with pytest.raises(ValueError, match=r"Scaled has scale \(Scaled\) beside reader and answer"):
        classifier_from_torch(scaled)


def test_a_tanh_cell_that_says_so(rng):
    module = Module(reader=RNN(layers(rng, "rnn"), nonlinearity="tanh"), answer=Linear(np.ones((4, 3))))
    assert classifier_from_torch(module)[0] == "rnn"


def test_a_state_dict_is_no_module(rng):
    with pytest.raises(TypeError, match="module is a dict, expected a module with a cell and a softmax"):
        classifier_from_torch(net(rng).state_dict())
