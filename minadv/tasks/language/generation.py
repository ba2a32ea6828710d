r"""Text from a language model, word by word: each word is drawn from the softmax and read as the next input.

.. math:: w_{t+1} \sim \mathrm{softmax}(z_t / \tau), \qquad \tau \to 0: \; w_{t+1} = \arg\max z_t
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from minadv.backend import same_place, to_host
from minadv.base.numbers import Count, ZeroOrMore
from minadv.base.schema import expect_type
from minadv.base.streams import stream
from minadv.base.trees import any_array
from minadv.data.vocabulary import EOS, UNK, Vocabulary
from minadv.fast import reusing
from minadv.models.language.model import LanguageModel, Params, States
from minadv.models.language.reading import next_word_probabilities
from minadv.tasks.run import Run
from minadv.training.parallel.inference import alone


def generate(
    run: Run,
    words: int,
    *,
    prompt: str | Sequence[str] = (),
    temperature: float = 1.0,
    seed: int = 0,
    unknown: bool = False,
) -> Iterator[str]:
    """The words after a prompt (none: the beginning of a line), drawn at a temperature; 0 takes the likeliest always.

    A word of the prompt that the vocabulary lacks is read as ``<unk>``, with a warning, and raises DataError if there
    is none. The prompt itself is not returned. The words depend on the arguments alone; ``<unk>`` is among them only
    with ``unknown=True``.
    """
    prompt, vocabulary = prompt.split() if isinstance(prompt, str) else prompt, run.vocabulary
    expect_type("temperature", temperature, ZeroOrMore)
    expect_type("words", words, Count)
    read = vocabulary.numbers(prompt or (EOS,), "the prompt")
    if strange := [word for word in prompt if word not in vocabulary.index]:
        warnings.warn(f"{', '.join(map(repr, strange))}: not in the vocabulary, read as {UNK}", stacklevel=4)
    never = None if unknown or len(vocabulary) < 3 else vocabulary.unk
    return _words(run.model, run.params, vocabulary, [int(n) for n in read], words, temperature, seed, never)


def _words(
    model: LanguageModel,
    params: Params,
    vocabulary: Vocabulary,
    read: list[int],
    words: int,
    temperature: float,
    seed: int,
    never: int | None,
) -> Iterator[str]:
    rng, model = stream(seed, "generate"), reusing(model)
    state: States | None = None
    with model.scope():
        for _ in range(words):
            with alone(params):  # left before the word is handed out: the limit of BLAS threads is the whole process's
                for token in read:
                    given = same_place(np.array([token]), any_array(params))
                    p, state = next_word_probabilities(model, params, state, given, temperature=temperature or 1.0)
            p = to_host(p).copy()
            if never is not None:
                p[0, never] = 0
            chances = np.cumsum(p[0], dtype=np.float64)  # (V,)
            drawn = int(np.searchsorted(chances, rng.random() * chances[-1], side="right"))
            word = min(drawn, len(vocabulary) - 1) if temperature else int(p[0].argmax())
            read = [word]
            yield vocabulary.words[word]
