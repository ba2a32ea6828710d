"""PyTorch networks through the door: the same masks, distances and gradients as minadv's own on the same weights."""

import numpy as np
import pytest

from minadv.adversary import find_adversary
from minadv.backend import to_host
from minadv.base.trees import leaves, tree_map
from minadv.modelcheck import check_model
from minadv.models import Batch, Classifier
from minadv.regularizers import AdD
from minadv.searches import Exact, Greedy, Memory, Random, Relax, Reselect
from minadv.torch_layout import to_torch
from tests.support.compare import assert_close, assert_same_bits
from tests.support.networks import network

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
from minadv import torch_door  # noqa: E402  (it needs torch)

SEARCHES = [
    Greedy(),
    Greedy(K=2, keep="last"),
    Reselect(swaps=1),
    Relax(),
    Relax(borrow=1),
    Memory(),
    Exact(),
    Random(3),
]


def with_grad(params):
    return tree_map(lambda a: torch.tensor(a, requires_grad=True), params)


def logits_of(params, x, m):
    """An LSTM of PyTorch's operations whose recurrent state is masked, and a softmax that reads its last state."""
    [p] = params.cells
    h = c = torch.zeros(x.shape[1], p.U.shape[0], dtype=x.dtype)
    for x_t in x:
        i, f, g, o = (x_t @ p.W + (m * h) @ p.U + p.b).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h @ params.V + params.b


@pytest.fixture
def both(rng):
    """minadv's network and batch, and the same as a function of PyTorch."""
    model, params, batch = network(rng, lambda tree: tree, B=5, H=6)
    theirs, x = with_grad(params), torch.tensor(batch.x)
    return (model, params, batch), theirs, lambda m: logits_of(theirs, x, m)


@pytest.mark.parametrize("distance", ["js", "kl"])
@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_every_search_finds_the_same_mask(search, distance, both):
    net, _, logits = both
    how = {"budgets": 2, "search": search, "distance": distance}
    ours = find_adversary(*net, rng=np.random.default_rng(1), **how)
    model = torch_door.TorchModel(logits, 6, dtype=torch.float64)
    theirs = find_adversary(model, *torch_door.nothing(5), rng=np.random.default_rng(1), **how)
    assert_same_bits(theirs.eps["mask"], ours.eps["layer0"])
    if ours.d is not None:
        assert_close(theirs.d, ours.d, 1e-10)
    assert (theirs.passes, theirs.budgets) == (ours.passes, {"mask": 2})


@pytest.mark.parametrize("stop_base", [False, True])
def test_the_loss_and_its_gradients(stop_base, both):
    (model, params, batch), theirs, logits = both
    given = {"delta": 0.4, "stop_base": stop_base}
    term = AdD(**given)(model, params, batch, rng=np.random.default_rng(2), likelihood=1.0)
    how = {"dtype": torch.float64, "rng": np.random.default_rng(2), **given}
    value, full = torch_door.adversarial_dropout(logits, 5, 6, **how)
    loss = torch.nn.functional.cross_entropy(full, torch.tensor(batch.targets)) + value.mean()
    loss.backward()
    assert_close(value.detach().numpy(), term.value, 1e-10)
    assert float(loss.detach()) == pytest.approx(float(term.nll.mean() + term.value.mean()), rel=1e-10)
    assert_close(tree_map(lambda a: a.grad.numpy(), theirs), term.grads, 1e-8)
    assert all(float(abs(g).max()) > 1e-6 for _, g in leaves(term.grads))


def test_a_prediction_at_every_step_and_several_masks(rng):
    """Steps weigh 1/T unless lam says otherwise; each mask has its own budget."""
    w = torch.tensor(rng.standard_normal((7, 4, 3)), requires_grad=True)

    def logits(m):
        return torch.tanh(torch.einsum("bh,thc->tbc", torch.cat([m["a"], m["b"] ** 2], dim=1), w))

    lam = np.array([0.5, 0, 0, 0, 0, 0, 0.25])
    how = {"delta": {"a": 0.5, "b": 1.0}, "search": Exact(), "dtype": torch.float64}
    value, full = torch_door.adversarial_dropout(logits, 2, {"a": 2, "b": 2}, **how)
    assert (value.shape, full.shape) == ((2,), (7, 2, 3))
    trace = find_adversary(
        torch_door.TorchModel(logits, {"a": 2, "b": 2}, dtype=torch.float64),
        *torch_door.nothing(2),
        budgets={"a": 1, "b": 2},
        search=Exact(),
    )
    assert_close(value.detach().numpy(), trace.d, 1e-10)
    weighed, _ = torch_door.adversarial_dropout(logits, 2, {"a": 2, "b": 2}, lam=lam, **how)
    assert (weighed.detach().numpy() < 0.75 * np.log(2)).all()
    weighed.sum().backward()
    assert not w.grad[1:6].any()
    assert w.grad[0].any() and w.grad[6].any()


@pytest.mark.parametrize("name", ["js", "kl", "rkl", "l2", "logit2"])
def test_a_distance_under_autograd(name, rng):
    one, two = (torch.tensor(rng.standard_normal((4, 3)), requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: torch_door.distance_of(a, b, name), (one, two))


def test_it_keeps_the_protocol(both):
    (_, _, batch), _, logits = both
    report = check_model(torch_door.TorchModel(logits, 6, dtype=torch.float64), *reversed(torch_door.nothing(5)))
    assert report, str(report)
    nll = torch_door.TorchModel(logits, 6, dtype=torch.float64).head(
        None, logits(torch.ones(5, 6, dtype=torch.float64)).detach().numpy()[None], batch.targets
    )
    full = torch.nn.functional.cross_entropy(
        logits(torch.ones(5, 6, dtype=torch.float64)), torch.tensor(batch.targets), reduction="none"
    )
    assert_close(nll.nll, full.detach().numpy(), 1e-10)


def test_what_the_function_must_return():
    for bad, said in (
        (lambda m: m.sum(), r"logits returned \(\), expected a tensor \(B, C\) or \(T, B, C\) with B = 3"),
        (lambda m: m[:1], r"logits returned \(1, 4\), expected"),
        (lambda m: m.detach().numpy(), "logits returned a ndarray, expected a tensor"),
    ):
        with pytest.raises(ValueError, match=said):
            find_adversary(
                torch_door.TorchModel(bad, 4), *torch_door.nothing(torch.ones(3, 2)), budgets=1, search=Relax()
            )


def test_units_are_any_whole_number():
    assert torch_door.TorchModel(lambda m: m, np.int64(6)).units == {"mask": 6}
    for units in (0, 2.5, True, {"h": "6"}):
        with pytest.raises(ValueError, match="expected a number of units, or a dict"):
            torch_door.TorchModel(lambda m: m, units)


def test_logits_that_know_no_mask(rng):
    for logits in (torch.zeros(2, 3), torch.zeros(2, 3, requires_grad=True) + 1):
        model = torch_door.TorchModel(lambda m, out=logits: out, 4)
        with pytest.raises(ValueError, match="logits do not depend on the mask"):
            find_adversary(model, *torch_door.nothing(2), budgets=2, rng=rng)


def test_a_network_on_another_device(rng):
    def logits(m):  # what torch says of a network on a GPU, where there is none
        raise RuntimeError("Expected all tensors to be on the same device, but found two, cuda:0 and cpu!")

    with pytest.raises(ValueError, match=r"masks on the device cpu .*give the network's as device="):
        find_adversary(torch_door.TorchModel(logits, 4), *torch_door.nothing(2), budgets=2, rng=rng)


def test_a_mask_that_is_not_used_has_no_influence():
    model = torch_door.TorchModel(lambda m: m["a"][:, :2] * 1.0, {"a": 4, "b": 3})
    _, _, cache = model.body(None, torch_door.Examples(2), masks={})
    grads = model.body_backward(None, cache, np.ones((1, 2, 2)), masks=("a", "b"))
    assert_same_bits(grads.masks["b"], np.zeros((2, 3)))
    assert grads.masks["a"].any()


class Net(torch.nn.Module):
    def __init__(self, kind="LSTM", outputs=3, **options):
        super().__init__()
        self.reader = getattr(torch.nn, kind)(2, 4, **options)
        self.answer = torch.nn.Linear(4, outputs)

    def forward(self, x):
        return self.answer(self.reader(x)[0][-1])


def with_more(part):
    net = Net()
    net.more = part
    return net


def test_parts_without_weights_may_be_there():
    assert Classifier.from_torch(with_more(torch.nn.Dropout(0.5)))[0].n_hidden == 4


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bias": False}], ids=str)
def test_a_classifier_from_a_module(kind, options, rng):
    net = Net(kind, **options).double()
    model, params = Classifier.from_torch(net)
    assert (model.n_in, model.n_hidden, model.n_classes) == (2, 4, 3)
    assert (model.cell, model.n_layers) == (kind.lower(), options.get("num_layers", 1))
    x = rng.standard_normal((5, 3, 2))
    features, _, _ = model.body(params, Batch(x, np.zeros(3, int)), masks={}, noise=None)
    assert_close(model.logits(params, features)[-1], net(torch.tensor(x)).detach().numpy(), 1e-10)
    assert set(to_torch(params.cells)) >= set(net.reader.state_dict())
    assert find_adversary(model, params, Batch(x), budgets=2, search=Relax()).d.min() > 0


def test_one_output_is_the_two_class_case(rng):
    net = Net(outputs=1).double()
    model, params = Classifier.from_torch(net)
    x = rng.standard_normal((5, 3, 2))
    logits = model.logits(params, model.body(params, Batch(x), masks={}, noise=None)[0])[-1]
    z = net(torch.tensor(x)).detach().numpy()[:, 0]
    assert_close(to_host(logits), np.stack([0 * z, z], axis=1), 1e-10)


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (lambda: torch.nn.Linear(2, 2), "Linear has 0 modules RNN, LSTM or GRU, expected one"),
        (lambda: torch.nn.LSTM(2, 4), "LSTM has 0 modules Linear that take H = 4 inputs, expected one"),
        (lambda: Net(bidirectional=True), "weight_ih_l0_reverse: a bidirectional module"),
        (lambda: Net("RNN", nonlinearity="relu"), "reader has the nonlinearity 'relu', expected 'tanh'"),
        (lambda: with_more(torch.nn.Embedding(9, 2)), r"Net has more.weight \(Embedding\) beside reader and answer: a"),
        (lambda: with_more(torch.nn.LayerNorm(4)), r"Net has more.weight \(LayerNorm\) beside reader and answer: a"),
        (lambda: with_more(torch.nn.Linear(5, 2)), r"Net has more.weight \(Linear\) beside .*torch_door takes any"),
        (lambda: with_more(torch.nn.Parameter(torch.ones(2))), r"Net has more \(Net\) beside reader and answer"),
    ],
)
def test_modules_that_are_no_classifier(net, said):
    with pytest.raises(ValueError, match=said):
        Classifier.from_torch(net())


def test_a_state_dict_is_no_module():
    with pytest.raises(TypeError, match="module is a OrderedDict, expected a module with a cell and a softmax"):
        Classifier.from_torch(Net().state_dict())


def test_a_module_is_refused_by_fit():
    import minadv

    with pytest.raises(TypeError, match="model is LSTM, a module of PyTorch"):
        minadv.fit(torch.nn.LSTM(2, 4), None)
