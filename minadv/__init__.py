"""minadv: adversarial dropout for recurrent neural networks, from scratch on NumPy and CuPy.

The paper is Park et al., *Adversarial Dropout for Recurrent Neural Networks*, AAAI 2019. Read the modules in the order
`rnn` (then `lstm`, `gru`), `masks`, `distances`, `influence`, `flip`, `adversary` (with `objective`, `searches` and
`protocol`), `regularizers`; each is one idea, with the paper's names. `fit` trains a model, `load` opens a run.
"""

from minadv.base import beginning  # noqa: F401  the first, for whoever presses Ctrl-C

# isort: split
from minadv import (
    adversary,
    backend,
    bounds,
    distances,
    flip,
    gradcheck,
    gru,
    influence,
    layers,
    lstm,
    masks,
    models,
    regularizers,
    rnn,
    searches,
    torch_layout,
)
from minadv.adversary import find_adversary
from minadv.backend import choose_device, namespace, to_device, to_host
from minadv.base.version import __version__ as __version__
from minadv.modelcheck import check_model
from minadv.tasks.config import register
from minadv.tasks.fit import fit
from minadv.tasks.resume import resume
from minadv.tasks.run import Run, load
from minadv.training.loop import Stop

__all__ = [
    "Run",
    "Stop",
    "adversary",
    "backend",
    "bounds",
    "check_model",
    "choose_device",
    "distances",
    "find_adversary",
    "fit",
    "flip",
    "gradcheck",
    "gru",
    "influence",
    "layers",
    "load",
    "lstm",
    "masks",
    "models",
    "namespace",
    "register",
    "regularizers",
    "resume",
    "rnn",
    "searches",
    "to_device",
    "to_host",
    "torch_layout",
]
