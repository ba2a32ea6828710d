r"""The weights of a language model that a classifier of texts begins with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from minadv.base.checks import expect_choice
from minadv.base.streams import stream
from minadv.base.trees import tree_map
from minadv.data.vocabulary import Vocabulary
from minadv.models import encoder
from minadv.models.pretraining import TextLM, pretrained
from minadv.models.text import TextClassifier
from minadv.tasks.run import Run, load
from minadv.training.runs.folder import RunError

Take: TypeAlias = Literal["all", "embeddings"]
"""What a classifier takes over from a language model: embeddings and cells, or the embeddings alone."""


def weights_of(
    run: Run | str | Path,
    model: TextClassifier,
    vocabulary: Vocabulary,
    *,
    dtype: str,
    seed: int,
    take: Take = "all",
) -> encoder.Params:
    """The embeddings and cells of a language model, on the host; raises unless the classifier can begin with them.

    With ``take="embeddings"`` the cells are fresh ones, those that a run of this seed would begin with on its own.
    """
    expect_choice("take", take, ("all", "embeddings"))
    run = run if isinstance(run, Run) else load(run)
    name = str(run.path or "the pre-trained run")
    if not isinstance(run.model, TextLM):
        raise RunError(f"{name} is a classifier already, expected a language model: a run of minadv pretrain")
    vocabulary.expect(run.vocabulary.fingerprint, name)
    cells = ("n_hidden", "cell", "n_layers") if take == "all" else ()
    for what in ("n_embedding", "normalise", *cells):
        mine, theirs = getattr(model, what), getattr(run.model, what)
        if mine != theirs:
            raise RunError(f"{what} is {mine}, expected {theirs}, that of {name}")
    fresh = model.init(stream(seed, "init"), dtype=run.config["dtype"])
    found = fresh.encoder
    assert found is not None and run.params.encoder is not None
    found = pretrained(run.params, fresh).encoder if take == "all" else replace(found, E=run.params.encoder.E)
    assert found is not None
    return tree_map(lambda a: a.astype(dtype), found)
