r"""The best weights of a run for other programs: one set of named arrays, and a card that says what they are.

Two layouts: ``"minadv"`` has the names of the parameters' records, ``"torch"`` those and the shapes of a PyTorch module
of these parts, in this order of use:

- ``embedding`` (texts, language): ``nn.Embedding``; a model that normalises its embeddings is given them normalised;
- ``rnn``: ``nn.RNN``, ``nn.LSTM`` or ``nn.GRU`` of all layers; of a language model, whose layers differ in size,
  ``rnns.0``, ``rnns.1``, ...: one of one layer each;
- ``hidden`` (classifiers of texts): ``nn.Linear``, then a ReLU; ``head``: ``nn.Linear`` to the logits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from minadv.backend import Array
from minadv.base.checks import expect_choice
from minadv.base.trees import leaves
from minadv.base.version import __version__
from minadv.tasks.reports import best_record
from minadv.tasks.run import Run
from minadv.torch_layout import to_torch
from minadv.training.runs.folder import expect_foreign

FORMAT = "minadv export 1"
LAYOUTS = ("minadv", "torch")
_BEGINS = f'{{\n "format": "{FORMAT}"'.encode()  # every card


def expect_target(path: Path, beside: Path) -> None:
    """Raise ValueError unless an export may be written to a file, with its card beside it: new ones, or those of one.

    An earlier export is known by its card. The files of a run are never written over, whether they are there or not.
    """
    for file in (path, beside):
        if file.is_dir():
            raise ValueError(f"{file} is a folder, expected the name of a file, such as {file / 'weights.safetensors'}")
        expect_foreign(file)
    if beside.exists() and not (beside.is_file() and _begins(beside)):
        raise ValueError(f"{beside} is there already and is no card of an export: choose another name")
    if path.exists() and not (path.is_file() and beside.exists()):
        raise ValueError(f"{path} is there already and is no export with a card {beside.name}: choose another name")


def _begins(card: Path) -> bool:
    with card.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS


def arrays(run: Run, layout: str = "minadv") -> dict[str, Array]:
    """The best weights of a run by name, on the host."""
    expect_choice("layout", layout, LAYOUTS)
    run.expect_finite(run.params)
    if layout == "minadv":
        return {name: np.ascontiguousarray(leaf) for name, leaf in leaves(run.params)}
    return {name: np.ascontiguousarray(leaf) for name, leaf in _torch(run).items()}


def card(run: Run, layout: str, held: dict[str, Array]) -> dict[str, Any]:
    """What a program needs to know of the arrays: model, layout, classes, words, scaling, and how good the run is."""
    config = run.config
    metric = run.family.metrics[0]
    best = best_record(run, config["recipe"]["monitor"]) if run.records else {}  # whose weights these are
    more = {name: config[name] for name in ("classes", "scaling", "max_tokens") if config.get(name) is not None}
    if "vocabulary" in config:
        more["vocabulary"] = {"split": run.vocabulary.split, "words": list(run.vocabulary.words)}
    return {
        "format": FORMAT,
        "minadv": __version__,
        "layout": layout,
        "kind": run.family.kind,
        "model": config["model"],
        "method": config.get("regularizer", {}).get("kind"),
        "data": config["about"],
        "best": {name: best[name] for name in ("step", "epoch", f"valid_{metric}", "valid_loss") if name in best},
        "tensors": {name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for name, leaf in held.items()},
        **more,
    }


def _torch(run: Run) -> dict[str, Array]:
    params, found = run.params, dict[str, Array]()
    encoder = getattr(params, "encoder", None)
    if encoder is not None:
        found["embedding.weight"] = _embedding(run, encoder)
    elif hasattr(params, "E"):
        found["embedding.weight"] = params.E
    cells = params.cells if encoder is None else encoder.cells
    for n, cell in enumerate(cells):
        layer, prefix = (0, f"rnns.{n}") if run.family.kind == "lm" else (n, "rnn")
        found |= {f"{prefix}.{name}": array for name, array in to_torch(cell, layer).items()}
    if hasattr(params, "W1"):
        found |= {"hidden.weight": params.W1.T, "hidden.bias": params.b1}
    if run.family.kind == "lm":
        return found | {"head.weight": params.E if params.P is None else params.P, "head.bias": params.b}
    by_rows = run.family.kind == "pretrain"  # whose V has a row a word already
    return found | {"head.weight": params.V if by_rows else params.V.T, "head.bias": params.b}


def _embedding(run: Run, encoder: Any) -> Array:
    """The embeddings as the cells see them."""
    moments = run.model.moments(encoder)
    if moments is None:
        return encoder.E  # type: ignore[no-any-return]
    normalised: Array = (encoder.E - moments.mean) * moments.scale
    return normalised
