"""The same masked recurrence under PyTorch's autograd, in float64: outputs and all gradients to 1e-10."""

from dataclasses import fields

import numpy as np
import pytest

from minadv import torch_layout
from minadv.base.trees import tree_map
from tests.support.cells import CELLS, GAPS, RAGGED, make
from tests.support.compare import assert_close

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOL = 1e-10


def rnn_step(p, x, hhat, h, c, leak):
    return torch.tanh(x @ p.W + hhat @ p.U + p.b), c


def lstm_step(p, x, hhat, h, c, leak):
    i, f, g, o = (x @ p.W + hhat @ p.U + p.b).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_step(p, x, hhat, h, c, leak):
    (xr, xz, xn), (hr, hz, hn) = (x @ p.W + p.b).chunk(3, dim=1), (hhat @ p.U).chunk(3, dim=1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * (hn + p.bn))
    return (1 - z) * n + z * (hhat if leak == "masked" else h), c


STEPS = {"rnn": rnn_step, "lstm": lstm_step, "gru": gru_step, "gru-masked-leak": gru_step}


def with_grad(a):
    return torch.tensor(a, requires_grad=True)


def torch_run(name, problem):
    """h, the last state and the gradients, in the shape of `Problem.run`, all from autograd."""
    args = tree_map(with_grad, {"m": np.ones(problem.dh[0].shape), **problem.args})  # without a mask m = 1
    params, x, state, m = args["params"], args["x"], args["state"], args["m"]
    h, c = state.h, getattr(state, "c", None)
    hs, hhats = [], []
    for t in range(x.shape[0]):
        hhat = h * m
        hhat.retain_grad()
        hhats.append(hhat)
        h_new, c_new = STEPS[name](params, x[t], hhat, h, c, problem.options.get("leak"))
        if problem.valid is not None:
            on = torch.tensor(problem.valid[t])[:, None]
            h_new, c_new = torch.where(on, h_new, h), None if c is None else torch.where(on, c_new, c)
        h, c = h_new, c_new
        hs.append(h)
    State = problem.cell.State
    last = State(*(value for _, value in zip(fields(State), (h, c), strict=False)))
    loss = (torch.stack(hs) * torch.tensor(problem.dh)).sum()
    for field in fields(State):
        loss = loss + (getattr(last, field.name) * torch.tensor(getattr(problem.dstate, field.name))).sum()
    loss.backward()
    grads = tree_map(lambda a: a.grad.numpy(), args)
    hhat_grads = np.stack([np.zeros(h.shape) if u.grad is None else u.grad.numpy() for u in hhats])
    out = torch.stack(hs).detach().numpy(), tree_map(lambda a: a.detach().numpy(), last)
    return *out, problem.cell.Grads(grads["params"], grads["x"], grads["state"], grads["m"], hhat_grads)


@pytest.mark.parametrize("valid", [None, RAGGED, GAPS], ids=["full", "ragged", "gaps"])
@pytest.mark.parametrize("mask", [None, "scaled", "real"])
@pytest.mark.parametrize("name", CELLS)
def test_masked_recurrence(name, mask, valid, rng, put):
    problem = make(name, rng, put, mask=mask, valid=valid)
    assert_close(problem.run(), torch_run(name, problem), TOL)


@pytest.mark.parametrize("name", CELLS)
def test_a_long_sequence_of_a_wider_network(name, rng, put):
    problem = make(name, rng, put, T=40, B=5, I=7, H=16, mask="binary", valid=rng.random((40, 5)) < 0.9)
    problem.args["params"] = problem.cell.init(rng, 7, 16, dtype=np.float64)  # larger weights would make it chaotic
    assert_close(problem.run(), torch_run(name, problem), TOL)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_nn_modules(name, rng, put):
    """Unmasked, the cells are PyTorch's own: outputs, states and all gradients, with the weights moved both ways."""
    module = getattr(torch.nn, name.upper())(2, 3).double()
    problem = make(name, rng, put, mask=None)
    arrays = {key: value.detach().numpy() for key, value in module.state_dict().items()}
    problem.args["params"] = params = torch_layout.from_torch(name, arrays)
    h, last, grads = problem.run()

    x, state = with_grad(problem.args["x"]), tree_map(lambda a: with_grad(a[None]), problem.args["state"])
    parts = tuple(vars(state).values())
    out, final = module(x, parts if name == "lstm" else parts[0])
    final = final if name == "lstm" else (final,)
    loss = (out * torch.tensor(problem.dh)).sum()
    loss = loss + sum((f[0] * torch.tensor(d)).sum() for f, d in zip(final, vars(problem.dstate).values(), strict=True))
    loss.backward()

    assert_close(
        (h, tuple(vars(last).values())), (out.detach().numpy(), tuple(f[0].detach().numpy() for f in final)), TOL
    )
    assert_close(
        (grads.x, tuple(vars(grads.state).values())), (x.grad.numpy(), tuple(p.grad.numpy()[0] for p in parts)), TOL
    )
    theirs = {key: value.grad.numpy() for key, value in module.named_parameters()}
    ours = torch_layout.to_torch(grads.params)
    for key in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
        assert_close(ours[key], theirs[key], TOL)
    if name == "gru":
        assert_close(grads.params.bn, theirs["bias_hh_l0"][-3:], TOL)

    module.load_state_dict({key: torch.tensor(value) for key, value in torch_layout.to_torch(params).items()})
    again, _ = module(x, parts if name == "lstm" else parts[0])
    assert_close(again.detach().numpy(), h, TOL)
