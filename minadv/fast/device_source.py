r"""The CUDA sources of the kernels of `minadv.fast.device`; nothing here needs CuPy or a GPU.

============================  ======================================================================================
``device_distances.cu``       distances with their gradients, and the cross-entropy: a block takes a row of logits
``device_embedding.cu``       the gradient of an embedding: a block takes a token and columns of its rows
``device_flip.cu``            the flip, the random start and zero maps: a block takes an example
``device_masks.cu``           random masks of keys
``device_update.cu``          clip, optimizer and checks over all weights, by a table of addresses
============================  ======================================================================================

The sources have no include, so that NVRTC compiles them as they are.
"""

from __future__ import annotations

import functools
from pathlib import Path

from minadv.base.philox import BLOCK, MULTIPLIERS, ROUNDS, WEYL

TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long", "uint8": "unsigned char"}
PRECISIONS = ("float32", "float64")  # of the arrays that the kernels take
INTEGERS = ("int32", "int64", "uint8")  # of tokens and targets
RULES = ("strict", "paper", "authors")  # of a flip; a kernel knows a rule by its place here
DISTANCES = ("js", "kl", "skl", "l2", "logit2")  # likewise; rkl is kl of exchanged arguments
FLIP_UNITS, FLIP_THREADS = 2048, 1024  # the most of a flip; a thread takes several units where there are more of them
MOST_LEAVES = 40  # of a tree of weights
CHUNK, THREADS = 2048, 256  # entries and threads of a block of an update
ROW_THREADS = 128  # of a block that takes a row of logits

_DEFINED: dict[str, dict[str, object]] = {
    "distances": {"THREADS": ROW_THREADS, **{name.upper(): n for n, name in enumerate(DISTANCES)}},
    "embedding": {},
    "flip": {
        "UNITS": FLIP_UNITS,
        "THREADS": FLIP_THREADS,
        **{name.upper(): n for n, name in enumerate(RULES)},
    },
    "masks": {
        "BLOCK": BLOCK,
        "ROUNDS": ROUNDS,
        **{f"M{n}": f"{value:#x}ULL" for n, value in enumerate(MULTIPLIERS)},
        **{f"W{n}": f"{value:#x}ULL" for n, value in enumerate(WEYL)},
    },
    "update": {"LEAVES": MOST_LEAVES, "CHUNK": CHUNK, "THREADS": THREADS},
}


@functools.cache
def source(file: str, **types: str) -> str:
    """The text of a file, compiled for these types: ``T="float32"`` and the like."""
    defined = "".join(f"#define {name} {value}\n" for name, value in _DEFINED[file].items())
    named = "".join(f"typedef {TYPES[dtype]} {name};\n" for name, dtype in types.items())
    text = (Path(__file__).parent / f"device_{file}.cu").read_text(encoding="utf-8")
    return f"{defined}{named}{text}"
