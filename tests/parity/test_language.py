"""AWD-LSTM written with PyTorch's functions, on the same words, masks and carried state: losses and all gradients."""

import numpy as np
import pytest

from minadv.base.trees import leaves, tree_add, tree_map
from minadv.distances import by_name
from minadv.models.language.model import LanguageModel
from minadv.models.language.reading import read
from tests.parity.test_torch_layers import TORCH
from tests.support.compare import assert_close
from tests.support.language_models import DROPOUTS, PENALTIES, language

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

TOL = 1e-10


def tensor(a):
    return torch.tensor(a, requires_grad=a.dtype.kind == "f")


def keep(a, mask, p):
    return a if mask is None else a * torch.tensor(mask) / (1 - p)


def cell(params, x, state, m):
    """One layer over all steps, with the mask on the recurrent connection."""
    h, c, out = state.h, state.c, []
    for x_t in x:
        i, f, g, o = (x_t @ params.W + (h * m) @ params.U + params.b).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out)


def run(net, params, state, masks):
    """The last layer's output, dropped out and raw."""
    model, noise, tokens = net.model, net.noise, torch.tensor(net.batch.tokens)
    E = params.E if noise is None or noise.words is None else keep(params.E, noise.words[:, None], model.word_dropout)
    x = F.embedding(tokens, E)
    x = x if noise is None else keep(x, noise.inputs, model.input_dropout)
    rates = [model.hidden_dropout] * (len(model.hidden) - 1) + [model.output_dropout]
    for n, layer in enumerate(params.cells):
        U = layer.U if noise is None else keep(layer.U, noise.U[n], model.dropconnect)
        dropped = type(layer)(layer.W, U, layer.b)
        h = cell(dropped, x, state[n], masks.get(f"layer{n}", 1.0))
        x = h if noise is None else keep(h, noise.outputs[n], rates[n])
    return x, h


def logits(params, o):
    return F.linear(o, params.E if params.P is None else params.P, params.b)


def training_loss(net, params, o, h):
    """The loss of AWD-LSTM's training, times the number of streams: minadv sums over them."""
    z, targets = logits(params, o), torch.tensor(net.batch.targets)
    nll = F.cross_entropy(z.reshape(-1, z.shape[-1]), targets.reshape(-1))
    penalty = net.model.alpha * o.pow(2).mean() + net.model.beta * (h[1:] - h[:-1]).pow(2).mean()
    return nll * len(net.batch), penalty * len(net.batch)


def gradients(tree):
    return tree_map(lambda t: np.zeros(t.shape) if t.grad is None else t.grad.numpy(), tree)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("dropouts", [{}, DROPOUTS], ids=["", "dropouts"])
@pytest.mark.parametrize("block", [None, 7])
def test_training(tied, dropouts, block, rng, put):
    hidden = (9, 5, 6) if tied else (9, 5)
    net = language(rng, put, T=8, B=4, V=20, D=6, hidden=hidden, tied=tied, block=block, **dropouts, **PENALTIES)
    args = {"params": net.params, "state": net.state, "masks": net.masks}
    features, _, cache = net.model.body(net.params, net.batch, masks=net.masks, noise=net.noise, state=net.state)
    head = net.model.head(net.params, features, net.batch.targets)
    back = net.model.body_backward(net.params, cache, head.dfeatures, masks=tuple(net.masks))

    theirs = tree_map(tensor, args)
    nll, penalty = training_loss(net, theirs["params"], *run(net, **theirs))
    (nll + penalty).backward()
    assert_close((head.nll.sum(), head.penalty.sum()), (nll.detach().numpy(), penalty.detach().numpy()), TOL)
    ours = {"params": tree_add(head.params, back.params), "state": back.state, "masks": back.masks}
    assert_close(ours, gradients(theirs), TOL)
    assert all(np.abs(g).max() > 0 for _, g in leaves(ours))


@pytest.mark.parametrize("name", ["js", "kl", "rkl", "skl", "l2", "logit2"])
def test_two_passes(name, rng, put):
    """The likelihood at the full network and a distance to the masked one, as in a step of adversarial dropout."""
    net = language(rng, put, T=8, B=4, V=20, D=6, hidden=(9, 5, 6), block=7, **DROPOUTS, **PENALTIES)
    m = {name: (rng.random(a.shape) > 0.3).astype(float) for name, a in net.masks.items()}
    given = {"noise": net.noise, "state": net.state}
    (f0, _, cache0), (f1, _, cache1) = (net.model.body(net.params, net.batch, masks=k, **given) for k in ({}, m))
    head = net.model.head(net.params, f0, net.batch.targets)
    gap = net.model.compare(net.params, f0, f1, None, by_name(name))
    back0 = net.model.body_backward(net.params, cache0, head.dfeatures + gap.dfeatures0)
    back1 = net.model.body_backward(net.params, cache1, gap.dfeatures1, masks=tuple(net.masks))

    params, state, masks = tree_map(tensor, (net.params, net.state, m))
    (o0, h0), (o1, _) = run(net, params, state, {}), run(net, params, state, masks)
    d = TORCH[name](logits(params, o0), logits(params, o1)).mean(dim=0)  # (B,)
    (sum(training_loss(net, params, o0, h0)) + d.sum()).backward()
    assert_close(gap.d, d.detach().numpy(), TOL)
    ours = tree_add(tree_add(head.params, gap.params), tree_add(back0.params, back1.params))
    assert_close(ours, gradients(params), TOL)
    assert_close(tree_add(back0.state, back1.state), gradients(state), TOL)
    assert_close(back1.masks, gradients(masks), TOL)


def test_perplexity_of_a_stack_of_pytorchs_own_layers(rng):
    """The weights of nn.LSTM layers of unequal sizes; they read the text at once, minadv window by window."""
    V, D, hidden = 30, 6, (9, 5, 6)
    model = LanguageModel(V, D, hidden)
    params = tree_map(lambda a: 3 * a, model.init(rng, dtype=np.float64))
    tokens = rng.integers(0, V, (50, 2))
    layers = []
    for n, layer in enumerate(params.cells):
        module = torch.nn.LSTM((D, *hidden)[n], hidden[n]).double()
        with torch.no_grad():
            for name, value in (
                ("weight_ih_l0", layer.W.T),
                ("weight_hh_l0", layer.U.T),
                ("bias_ih_l0", layer.b),
                ("bias_hh_l0", 0 * layer.b),
            ):
                getattr(module, name).copy_(torch.tensor(value))
        layers.append(module)
    with torch.no_grad():
        x, E = torch.tensor(params.E)[torch.tensor(tokens[:-1])], torch.tensor(params.E)
        for module in layers:
            x, _ = module(x)
        z = F.linear(x, E, torch.tensor(params.b))
        nll = F.cross_entropy(z.reshape(-1, V), torch.tensor(tokens[1:]).reshape(-1), reduction="sum")
    found = read(model, params, tokens, window=11)
    assert (found.n, found.nll) == (98, pytest.approx(float(nll), rel=1e-12))
