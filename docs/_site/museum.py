r"""The museum's demonstrations: what to look at in each piece, and a check that notices it.

A demonstration is two short programs over minadv, run once as minadv is and once with the mistake planted: ``numbers``
prints what the mistake changes, ``check`` prints a verdict that has "passed" or "FAILED" in it. They run at build time
and in the page's worker alike. The pieces themselves (which line, what it does, where it was reported) are in
``tests/support/museum.py``, whose mutants the tests must catch; `museum_page` joins the two by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import minadv


@dataclass(frozen=True)
class Demo:
    """``numbers`` and ``check`` as programs; ``looks_at`` says in a few words what is printed."""

    looks_at: str
    numbers: str
    check: str


LSTM = """\
import numpy as np
from minadv import gradcheck, lstm

rng = np.random.default_rng(0)
T, B, I, H = 4, 2, 3, 2
params = lstm.Params(*(rng.standard_normal(s) for s in ((I, 4 * H), (H, 4 * H), (4 * H,))))
x, m = rng.standard_normal((T, B, I)), np.array([[1.0, 0.0], [1.0, 1.0]])
h, state, cache = lstm.forward(params, x, m=m)
"""
LSTM_CHECK = """
def forward(params, x, m):
    return lstm.forward(params, x, m=m)[0]

def backward(args, dh):
    _, _, cache = lstm.forward(args["params"], args["x"], m=args["m"])
    grads = lstm.backward(args["params"], cache, dh)
    return {"params": grads.params, "x": grads.x, "m": grads.m}

print(gradcheck.check(forward, backward, {"params": params, "x": x, "m": m}, rng=rng))
"""
RNN = """\
import numpy as np
from minadv import gradcheck, rnn

rng = np.random.default_rng(0)
T, B, I, H = 4, 1, 2, 3
params = rnn.Params(*(rng.standard_normal(s) for s in ((I, H), (H, H), (H,))))
x, m = rng.standard_normal((T, B, I)), np.array([[0.0, 1.0, 1.0]])
"""
LANGUAGE = """\
import numpy as np
from minadv.models import LanguageModel, TokenBatch

rng = np.random.default_rng(0)
model = LanguageModel(n_words=12, n_embed=4, hidden=(4,), dropconnect=0.5, engine="plain")
params = model.init(rng, dtype=np.float64)
tokens = rng.integers(0, 12, (6, 2))
batch = TokenBatch(tokens[:-1], tokens[1:])
"""
CLASSIFIER = """\
import warnings
import numpy as np
from minadv import find_adversary
from minadv.base.trees import tree_map
from minadv.models import Batch, Classifier
from minadv.regularizers import AdD
from minadv.searches import Greedy, Reselect

rng = np.random.default_rng(6)
model = Classifier(n_in=8, n_hidden=6, n_classes=3, input_dropout=0.5, engine="plain")
params = tree_map(lambda a: 2 * a, model.init(rng, dtype=np.float64))
batch = Batch(rng.standard_normal((5, 2, 8)))
"""

DEMOS = {
    "one gate's bias for three gates": Demo(
        "the last state",
        LSTM + 'print("last state h_T", state.h.round(4), sep="\\n")',
        LSTM_CHECK,
    ),
    "one gate's bias gradient for three gates": Demo(
        "the gradient of the biases, a row a gate",
        LSTM
        + "grads = lstm.backward(params, cache, np.ones_like(h))\n"
        + 'for gate, row in zip("ifgo", grads.params.b.reshape(4, H)):\n    print(gate, row.round(4))',
        LSTM_CHECK,
    ),
    "bias added twice": Demo(
        "the last state",
        LSTM + 'print("last state h_T", state.h.round(4), sep="\\n")',
        LSTM_CHECK,
    ),
    "gate added, not multiplied": Demo(
        "the cell after each step, which must stay below the number of steps",
        LSTM + 'for t in range(1, T + 1):\n    print("c after step", t, cache.c[t, 0].round(4))',
        LSTM_CHECK,
    ),
    "the cell's gradient overwritten": Demo(
        "how much of a loss at the last step reaches the input of each step",
        LSTM
        + "dh = np.zeros_like(h)\ndh[-1] = 1\ndx = lstm.backward(params, cache, dh).x\n"
        + 'for t in range(T):\n    print("|dx| at step", t + 1, np.abs(dx[t]).sum().round(4))',
        LSTM_CHECK,
    ),
    "the mask lost on the way back": Demo(
        "the gradient of the input where unit 0 is dropped",
        RNN
        + "h, _, cache = rnn.forward(params, x, m=m)\ngrads = rnn.backward(params, cache, np.ones_like(h))\n"
        + 'print("dx", grads.x[:, 0].round(4), sep="\\n")',
        LSTM_CHECK.replace("lstm", "rnn"),
    ),
    "padding changes the state": Demo(
        "the last state of a sequence of four steps, alone and with three steps of padding",
        RNN
        + "def last(padding):\n"
        + "    longer = np.concatenate([x, np.zeros((padding, B, I))])\n"
        + "    valid = np.arange(T + padding)[:, None] < np.full(B, T)\n"
        + "    return rnn.forward(params, longer, m=m, valid=valid)[1].h[0]\n\n"
        + 'print("alone ", last(0).round(4))\nprint("padded", last(3).round(4))',
        "same = np.array_equal(last(0), last(3))\n"
        'print("passed: padding does not matter" if same else "FAILED: padding changes the state")',
    ),
    "dropped weights never restored": Demo(
        "how many recurrent weights are zero after so many passes, of 64",
        LANGUAGE
        + "before = params.cells[0].U.copy()\n"
        + "for n in range(1, 5):\n"
        + "    model.body(params, batch, masks={}, noise=model.noise(rng, batch))\n"
        + '    print("after pass", n, (params.cells[0].U == 0).sum(), "zeros")',
        'same = np.array_equal(before, params.cells[0].U)\nprint("passed: a pass leaves the weights alone" '
        'if same else "FAILED: the weights have changed")',
    ),
    "no gradient through the weight drop": Demo(
        "the largest gradient of the recurrent and of the input weights",
        LANGUAGE
        + "noise = model.noise(rng, batch)\n"
        + "features, _, cache = model.body(params, batch, masks={}, noise=noise)\n"
        + "grads = model.body_backward(params, cache, np.ones_like(features)).params.cells[0]\n"
        + 'for name in "UW":\n    print(f"largest |d{name}|", np.abs(getattr(grads, name)).max().round(4))',
        """
from dataclasses import replace
from minadv import gradcheck

def forward(U):
    cell = replace(params.cells[0], U=U)
    return model.body(replace(params, cells=(cell,)), batch, masks={}, noise=noise)[0]

def backward(args, dfeatures):
    changed = replace(params, cells=(replace(params.cells[0], U=args["U"]),))
    _, _, cache = model.body(changed, batch, masks={}, noise=noise)
    return {"U": model.body_backward(changed, cache, dfeatures).params.cells[0].U}

print(gradcheck.check(forward, backward, {"U": params.cells[0].U}, rng=rng))
""",
    ),
    "other dropout in the two passes": Demo(
        "the distance that the search found, and the one that is trained on",
        CLASSIFIER
        + "noise, how = model.noise(rng, batch), {'budgets': 2, 'search': Reselect()}\n"
        + "found = find_adversary(model, params, batch, noise=noise, rng=np.random.default_rng(2), **how)\n"
        + "term = AdD(**how)(model, params, batch, noise=noise, rng=np.random.default_rng(2))\n"
        + 'print("found by the search", found.d.round(4))\nprint("trained on         ", term.value.round(4))',
        "same = np.allclose(term.value, found.d, rtol=1e-9)\n"
        'print("passed: the two are one distance" if same else "FAILED: dropout of the inputs is in the distance")',
    ),
    "the flip off by one": Demo(
        "how many units are flipped for a budget of 3",
        "import numpy as np\nfrom minadv.flip import flip\n\n"
        "rng = np.random.default_rng(0)\neps0 = np.ones((4, 8))\n"
        "eps = flip(eps0, rng.standard_normal((4, 8)) - 1, eps0, 3)\n"
        'print("flips in four examples", (eps != eps0).sum(axis=1))',
        "within = ((eps != eps0).sum(axis=1) <= 3).all()\n"
        'print("passed: never beyond the budget" if within else "FAILED: beyond the budget")',
    ),
    "rounding picks the units": Demo(
        "two passes whose inputs differ in the last digit: the influence map, and the units that are flipped by it",
        CLASSIFIER
        + "from minadv.models.classifier import Noise\n\n"
        + "noise = model.noise(rng, batch)\n"
        + "other = Noise(noise.inputs * (1 + 2.0**-51))  # the same dropout but for rounding\n"
        + "with warnings.catch_warnings():\n"
        + '    warnings.simplefilter("ignore")\n'
        + '    how = {"search": Greedy(start="base", keep="last"), "budgets": 2, "noise": noise, "adv_noise": other}\n'
        + "    trace = find_adversary(model, params, batch, rng=rng, **how)\n"
        + 'im = trace.im["layer0"]\n'
        + 'print("map below 1e-12:", bool(np.abs(im).max() < 1e-12))\n'
        + 'print("exactly zero:", not im.any())\n'
        + 'print("units flipped in two examples:", trace.flips["layer0"])',
        'flipped = trace.flips["layer0"].any()\n'
        'print("FAILED: rounding has flipped units" if flipped else "passed: nothing is flipped by rounding")',
    ),
}
"""By the name of the piece in ``tests/support/museum.py``, without "museum: "."""


def text_with(file: str, old: str, new: str) -> str:
    """The text of a file of minadv/ with a mistake planted: ``old``, which stands there once, becomes ``new``."""
    assert minadv.__file__ is not None
    text = (Path(minadv.__file__).parent / file).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"minadv/{file} has {old!r} {text.count(old)} times, expected once")
    return text.replace(old, new)
