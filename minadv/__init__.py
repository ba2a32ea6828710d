"""minadv: adversarial dropout for recurrent neural networks, from scratch on NumPy and CuPy.

The paper is Park et al., *Adversarial Dropout for Recurrent Neural Networks*, AAAI 2019. Read the modules in the order
`rnn` (then `lstm`, `gru`), `distances`; each is one idea, with the paper's names.
"""

from minadv import backend, distances, gates, gradcheck, gru, layers, lstm, rnn, torch_layout
from minadv.backend import choose_device, namespace, to_device, to_host
from minadv.workspace import StaleCacheError, Workspace

__version__ = "0.1.0"

__all__ = [
    "StaleCacheError",
    "Workspace",
    "backend",
    "choose_device",
    "distances",
    "gates",
    "gradcheck",
    "gru",
    "layers",
    "lstm",
    "namespace",
    "rnn",
    "to_device",
    "to_host",
    "torch_layout",
]
