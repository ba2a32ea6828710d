"""The real IMDB, end to end: read, pre-trained on, classified with adversarial dropout. It reads 100,000 texts."""

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from minadv.data.texts import reviews
from minadv.data.texts.counting import Cut
from minadv.data.texts.documents import Corpus, Options
from minadv.influence import ZeroInfluenceWarning
from minadv.models.pretraining import TextLM
from minadv.models.text import TextClassifier
from minadv.regularizers import AdD, Regularizer
from minadv.searches import Greedy
from minadv.tasks.fit import fit
from minadv.tasks.run import Run

pytestmark = pytest.mark.slow
SIZES = (16, 50)


@pytest.fixture(scope="module")
def imdb() -> Corpus:
    given = os.environ.get("MINADV_DATA")
    if given is None or not (Path(given) / "imdb").is_dir():
        pytest.skip(f"MINADV_DATA is {given!r}, expected a folder that holds imdb with its archive")
    return reviews.load("imdb", data_dir=given, options=Options(Cut(max_size=5000)), cache=False)


@pytest.fixture(scope="module")
def before(imdb: Corpus) -> Run:
    model = TextLM(len(imdb.vocabulary), *SIZES, n_candidates=200)
    return fit(model, imdb, steps=8, batch_size=16, T=20, held_out=2000, progress=False, workers=1)


def test_what_is_read(imdb: Corpus) -> None:
    assert imdb.classes == ("neg", "pos")
    assert len(imdb.train) + len(imdb.valid) == len(imdb.test) == 25_000
    assert (len(imdb.valid), len(imdb.unlabelled)) == (3750, 50_000)
    assert imdb.test.labels is not None and int(imdb.test.labels.sum()) == 12_500
    assert len(imdb.vocabulary) == 5000
    assert {"the", "The", "movie", "."} <= set(imdb.vocabulary.words)  # case is kept
    assert imdb.vocabulary.words.index("the") < 10


def test_pretraining(before: Run) -> None:
    """A few steps take it below the perplexity of words that are all alike."""
    [record] = before.records
    assert 1 < record["valid_perplexity"] < 5000


ADD = {
    f"{name} K={K}": AdD(delta=0.04, search=Greedy(K=K, start=start, keep="last"), share_noise=start == "flip")
    for K in (1, 2)
    for name, start in {"minadv": "flip", "paper": "base"}.items()
}


@pytest.mark.parametrize("name", ADD)
def test_adversarial_dropout_finds_no_zero_map(name: str, imdb: Corpus, before: Run, tmp_path: Path) -> None:
    how: dict[str, Any] = {"batch_size": 16, "unlabelled_size": 16, "max_tokens": 60, "workers": 1, "progress": False}
    regularizer: Regularizer = ADD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ZeroInfluenceWarning)
        run = fit(
            TextClassifier(len(imdb.vocabulary), *SIZES, n_classes=2),
            imdb,
            regularizer=regularizer,
            pretrained=before,
            steps=3,
            out=tmp_path / "run",
            **how,
        )
    [record] = run.records
    assert record["regularizer"] > 0
    assert 0 < record["valid_error"] < 100
    assert run.predict(["A wonderful film .", "Awful ."]).shape == (2, 2)
