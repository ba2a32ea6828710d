"""Small corpora of texts in memory, and models and tasks on them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minadv.data.texts.counting import Cut
from minadv.data.texts.documents import Corpus, Options, Source, Text, build
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.tasks.pretrain.task import PretrainTask
from minadv.tasks.text.task import TextTask

CLASSES = ("bad", "good")
FILLERS = ("the", "film", "a", "it", "was", "and")


def corpus(
    n: int = 24, *, seed: int = 0, unlabelled: int = 30, longest: int = 9, heavy: bool = False, name: str = "toy"
) -> Corpus:
    """Texts of fillers with words of their class among them; ``n`` to train on, 5/6 of them after validation.

    ``heavy``: a few of them are much longer than ``longest``.
    """
    rng = np.random.default_rng(seed)

    def length() -> int:
        return int(2 + longest * rng.pareto(1.2)) if heavy else int(rng.integers(2, longest))

    def text(label: str) -> str:
        own = [f"{label}{k}" for k in range(3)]
        words = [str(rng.choice(own if rng.random() < 0.4 else FILLERS)) for _ in range(length())]
        return " ".join([*words, own[0]])

    def texts() -> Iterator[Text]:
        for part, many in (("train", n), ("test", 12), ("unlabelled", unlabelled)):
            for k in range(many):
                label = CLASSES[k % 2]
                yield Text(part, None if part == "unlabelled" else label, "file", text(label), k + 1)  # type: ignore[arg-type]

    source = Source(name, name, "spaces", lambda: "", texts)
    return build(source, Options(Cut(min_count=1), valid_share=1 / 6))


def classifier(of: Corpus, put: Callable[[Any], Any] = lambda a: a, **options: Any) -> TextClassifier:
    options = {"n_classes": len(of.classes), "n_relu": 20, **options}
    return TextClassifier(len(of.vocabulary), 12, 10, frequencies=put(of.vocabulary.frequencies), **options)


def language_model(of: Corpus, put: Callable[[Any], Any] = lambda a: a, **options: Any) -> TextLM:
    options = {"n_candidates": 5, **options}
    return TextLM(len(of.vocabulary), 12, 10, frequencies=put(of.vocabulary.frequencies), **options)


def text_task(put: Callable[[Any], Any], regularizer: Any = None, **options: Any) -> TextTask:
    of = options.pop("of", None) or corpus()
    model = classifier(of, put, **options.pop("model", {}))
    given = {"batch_size": 6, "unlabelled_size": 4, **options}
    return TextTask(model, of, **({} if regularizer is None else {"regularizer": regularizer}), **given)


def pretrain_task(put: Callable[[Any], Any], **options: Any) -> PretrainTask:
    of = options.pop("of", None) or corpus()
    model = language_model(of, put, **options.pop("model", {}))
    return PretrainTask(model, of, **{"batch_size": 4, "T": 5, "held_out": 40, **options})
