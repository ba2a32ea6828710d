"""The models of text under PyTorch's autograd, in float64: values and all gradients to 1e-10."""

from dataclasses import replace

import numpy as np
import pytest

from minadv.base.trees import tree_map
from minadv.models.text import TextClassifier
from minadv.words import embedding, sampled_softmax
from minadv.words.sampled_softmax import Sampled, correct, draw
from tests.parity.test_torch_cells import STEPS, with_grad
from tests.support.compare import assert_close
from tests.support.texts import classifier, language_model, zipf

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional

TOL = 1e-10


def normalised(E, f):
    mean = f @ E
    return (E - mean) / torch.sqrt(1e-6 + f @ (E - mean) ** 2)


def grads_of(tree):
    return tree_map(lambda a: a.grad.numpy(), tree)


def encode(model, params, tokens, *, f, keep, dx, masks, valid=None):
    """The states of every step of the last layer."""
    x = F.embedding(torch.tensor(tokens), normalised(params.encoder.E, f))
    x = x * torch.tensor(keep / (1 - model.embedding_dropout)) + dx
    for n, layer in enumerate(params.encoder.cells):
        h = c = torch.zeros(x.shape[1], model.n_hidden, dtype=torch.float64)
        states = []
        for t in range(len(x)):
            h_new, c_new = STEPS[model.cell](layer, x[t], h * masks[f"layer{n}"], h, c, "clean")
            if valid is not None:
                on = torch.tensor(valid[t])[:, None]
                h_new, c_new = torch.where(on, h_new, h), torch.where(on, c_new, c)
            h, c = h_new, c_new
            states.append(h)
        x = torch.stack(states)
    return x


def real_masks(rng, model, B):
    return {site.name: rng.uniform(0.5, 1.5, (B, site.H)) for site in model.sites}


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("output", ["softmax", "sigmoid"])
def test_the_classifier(cell, output, rng, put):
    """Normalised embeddings, dropout, two masked layers, padding, perturbation, masked readout, ReLU and head."""
    model, params, batch = classifier(
        rng, put, T=6, B=4, V=9, D=5, cell=cell, n_layers=2, C=2, output=output, embedding_dropout=0.3
    )
    batch = replace(batch, valid=np.arange(6)[:, None] >= np.array([0, 2, 5, 1]))
    noise, dx, masks = model.noise(rng, batch), rng.standard_normal((6, 4, 5)), real_masks(rng, model, 4)
    features, _, cache = model.body(params, batch, masks=masks, noise=noise, dx=dx)
    head = model.head(params, features, batch.targets)
    back = model.body_backward(params, cache, head.dfeatures, inputs=True, masks=tuple(masks))

    theirs, dx_t, masks_t = tree_map(with_grad, (params, dx, masks))
    h = encode(
        model, theirs, batch.tokens, f=torch.tensor(zipf(9)), keep=noise.keep, dx=dx_t, masks=masks_t, valid=batch.valid
    )[-1]
    z = F.linear(F.relu(F.linear(h * masks_t["readout"], theirs.W1.T, theirs.b1)), theirs.V.T, theirs.b)
    y = torch.tensor(batch.targets)
    if output == "sigmoid":
        nll = F.binary_cross_entropy_with_logits(z[:, 0], y.double(), reduction="none")
    else:
        nll = F.cross_entropy(z, y, reduction="none")
    nll.sum().backward()
    assert_close(head.nll, nll.detach().numpy(), TOL)
    assert_close(replace(head.params, encoder=back.params.encoder), grads_of(theirs), TOL)
    assert_close((back.inputs, back.masks), (dx_t.grad.numpy(), grads_of(masks_t)), TOL)


def test_a_long_text_of_a_wider_network_truncated(rng):
    """The states before the truncation are detached, as a PyTorch user would do it."""
    model = TextClassifier(50, 8, 16, truncate=12, frequencies=zipf(50))
    params = model.init(rng, dtype=np.float64)
    _, _, batch = classifier(rng, lambda tree: tree, T=40, B=5, V=50, C=2)
    noise, masks = model.noise(rng, batch), real_masks(rng, model, 5)
    features, _, cache = model.body(params, batch, masks=masks, noise=noise)
    head = model.head(params, features, batch.targets)
    back = model.body_backward(params, cache, head.dfeatures, masks=tuple(masks))

    theirs, masks_t = tree_map(with_grad, (params, masks))
    Ebar = normalised(theirs.encoder.E, torch.tensor(zipf(50)))
    x = F.embedding(torch.tensor(batch.tokens), Ebar) * torch.tensor(noise.keep * 2.0)
    h = c = torch.zeros(5, 16, dtype=torch.float64)
    for t in range(40):
        h, c = STEPS["lstm"](theirs.encoder.cells[0], x[t], h * masks_t["layer0"], h, c, "clean")
        if t == 27:
            h, c = h.detach(), c.detach()
    z = F.linear(F.relu(F.linear(h * masks_t["readout"], theirs.W1.T, theirs.b1)), theirs.V.T, theirs.b)
    nll = F.cross_entropy(z, torch.tensor(batch.targets), reduction="none")
    nll.sum().backward()
    assert_close(head.nll, nll.detach().numpy(), TOL)
    assert_close(replace(head.params, encoder=back.params.encoder), grads_of(theirs), TOL)
    assert_close(back.masks, grads_of(masks_t), TOL)


def torch_sampled(hidden, V, b, targets):
    """The definition: the true word in column 0, a hit at minus infinity."""
    words, drawn = torch.tensor(targets.words), torch.tensor(targets.candidates)
    true = (hidden * V[words]).sum(-1) + b[words]
    z = hidden @ V[drawn].T + b[drawn]
    if targets.log_q is not None:
        true, z = true - torch.tensor(targets.log_q), z - torch.tensor(targets.candidates_log_q)
    z = z.masked_fill(words[..., None] == drawn, -torch.inf)
    z = torch.cat([true[..., None], z], dim=-1)
    return torch.logsumexp(z, dim=-1) - true


@pytest.mark.parametrize("corrected", [False, True])
def test_sampled_softmax(corrected, rng):
    hidden, V, b = rng.standard_normal((7, 6, 4)), rng.standard_normal((30, 4)), rng.standard_normal(30)
    words, weight = rng.integers(0, 29, (7, 6)), rng.standard_normal((7, 6))
    targets = correct(words, draw(rng, zipf(30), 12), zipf(30))
    targets = targets if corrected else Sampled(words, targets.candidates)
    ours = sampled_softmax.sampled_softmax(hidden, V, b, targets, weight=weight)
    theirs = [with_grad(a) for a in (hidden, V, b)]
    nll = torch_sampled(*theirs, targets)
    (nll * torch.tensor(weight)).sum().backward()
    assert_close(ours, (nll.detach().numpy(), *(a.grad.numpy() for a in theirs)), TOL)


def test_the_language_model(rng, put):
    model, params, batch = language_model(rng, put, T=6, B=4, V=9, n_candidates=5)
    batch = model.with_candidates(rng, batch)
    noise, dx, masks = model.noise(rng, batch), rng.standard_normal((6, 4, 3)), real_masks(rng, model, 4)
    features, _, cache = model.body(params, batch, masks=masks, noise=noise, dx=dx)
    head = model.head(params, features, batch.targets)
    back = model.body_backward(params, cache, head.dfeatures, inputs=True, masks=tuple(masks))

    theirs, dx_t, masks_t = tree_map(with_grad, (params, dx, masks))
    h = encode(model, theirs, batch.tokens, f=torch.tensor(zipf(9)), keep=noise.keep, dx=dx_t, masks=masks_t)
    nll = torch_sampled(h * masks_t["readout"], theirs.V, theirs.b, batch.targets).mean(dim=0)
    nll.sum().backward()
    assert_close(head.nll, nll.detach().numpy(), TOL)
    assert_close(replace(head.params, encoder=back.params.encoder), grads_of(theirs), TOL)
    assert_close((back.inputs, back.masks), (dx_t.grad.numpy(), grads_of(masks_t)), TOL)


def test_normalised_embeddings(rng):
    E, f, tokens, dy = rng.standard_normal((9, 4)), zipf(9), rng.integers(0, 9, (5, 3)), rng.standard_normal((5, 3, 4))
    E_t = with_grad(E)
    y = F.embedding(torch.tensor(tokens), normalised(E_t, torch.tensor(f)))
    (y * torch.tensor(dy)).sum().backward()
    at = embedding.moments(E, f)
    assert_close(embedding.lookup(E, tokens, at), y.detach().numpy(), TOL)
    assert_close(embedding.lookup_backward(E, tokens, dy, at), E_t.grad.numpy(), TOL)
