r"""Lines about language models: what was found of the text, and the perplexity of single words."""

from __future__ import annotations

from typing import Any

from minadv.tasks import baselines, fitting
from minadv.tasks.language.presets import OWN


def summary(plan: Any) -> str:
    """What was found: words by part, the vocabulary, and how much of the validation text it lacks."""
    data, unk = plan.data, plan.data.vocabulary.unk
    unknown = f"{float((data.valid == unk).mean()):.1%}" if unk is not None else "none"
    sizes = f"{len(data.train):,} train, {len(data.valid):,} valid, {len(data.test):,} test words"
    few = fitting.few(len(data.train) // 100, "hundreds of words") if data.name in OWN else ""
    return (
        f"{data.name}: {sizes}; vocabulary {len(data.vocabulary):,}, unknown to it {unknown} of the validation words; "
        f"{plan.model.n_params:,} weights{few}"
    )


def baseline(run: Any, perplexity: float) -> str:
    """A line: the perplexity of the run's test text by single words."""
    data = run.data
    return baselines.of_words(baselines.unigram(data.train, data.test, len(data.vocabulary)), perplexity)
