"""`fit` on arrays: parts are drawn or given, ragged sequences are padded, and padding has no effect."""

from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base.errors import DataError
from minadv.data.arrays import from_arrays
from minadv.data.images import Images
from minadv.data.split import Split
from minadv.models.classifier import Classifier
from minadv.regularizers import AdD
from minadv.tasks.images.task import evaluate
from minadv.training.optimizers import Adam
from minadv.training.runs.folder import RunError
from tests.support.compare import assert_close, assert_same_bits
from tests.support.problems import MODEL, sequences

QUICK: dict[str, Any] = {"optimizer": Adam(0.03), "progress": False, "workers": 1}
WHOLE = sequences(n=90).train


def ragged(padding: float = 0.0) -> tuple[Any, ...]:
    """Sequences of 2 to 4 steps whose class is told by their last step alone."""
    rng = np.random.default_rng(2)
    y, lengths = np.arange(90) % 3, rng.integers(2, 5, 90)
    x = rng.standard_normal((90, 4, 2))
    x[np.arange(90), lengths - 1] = np.array([[2, 0], [0, 2], [-2, -2]])[y]
    x[np.arange(4) >= lengths[:, None]] = padding
    return x, y, lengths


def test_two_arrays() -> None:
    run = minadv.fit(MODEL, (WHOLE.x, WHOLE.y), epochs=6, **QUICK)
    assert [len(part) for part in (run.data.train, run.data.valid, run.data.test)] == [72, 9, 9]
    assert run.config["batch_size"] == 6  # a dozen steps an epoch
    assert run.test()["error"] == 0
    other = minadv.fit(MODEL, Split(WHOLE.x, WHOLE.y), valid=0.2, test=(WHOLE.x, WHOLE.y), epochs=1, **QUICK)
    assert [len(part) for part in (other.data.train, other.data.valid, other.data.test)] == [72, 18, 90]


def test_padding_has_no_effect() -> None:
    one, two = (minadv.fit(MODEL, ragged(padding), epochs=8, regularizer=AdD(delta=0.4), **QUICK) for padding in (0, 7))
    assert one.test()["error"] == 0
    assert_same_bits(one.params, two.params)
    x, y, lengths = ragged()
    sequences = [a[:n] for a, n in zip(x, lengths, strict=True)]
    three = minadv.fit(MODEL, (sequences, y), epochs=8, regularizer=AdD(delta=0.4), **QUICK)
    assert_same_bits(one.params, three.params)
    p = one.predict(sequences)
    alone = np.concatenate([one.predict(a[None]) for a in sequences])
    assert_close(p, alone, 1e-5)
    assert (p.argmax(axis=1) == y).mean() > 0.95
    whole = from_arrays(x, y, lengths).train
    assert_close(
        evaluate(MODEL, one.params, whole, batch_size=7)["loss"],
        evaluate(MODEL, one.params, whole, batch_size=50)["loss"],
        1e-6,
    )


def test_lengths_are_part_of_the_data(tmp_path: Any) -> None:
    pytest.importorskip("safetensors")
    x, y, lengths = ragged()
    given: dict[str, Any] = {**QUICK, "epochs": 1, "out": tmp_path / "run"}
    run = minadv.fit(MODEL, (x, y, lengths), **given)
    again = minadv.fit(MODEL, (x, y, lengths), resume=True, **given)
    assert_same_bits(again.params, run.params)
    with pytest.raises(RunError, match="was made with other data"):
        minadv.fit(MODEL, (x, y), resume=True, **given)
    target = run.family.can("attack", None)(run, 5)
    assert [len(batch) for batch, _ in target.examples] == [5]
    assert target.examples[0][0].valid is not None


DATA: Images = sequences()


@pytest.mark.parametrize(
    ("model", "data", "how", "kind", "said"),
    [
        (MODEL, (WHOLE.x, WHOLE.y[:10]), {}, DataError, r"data: x has 90 rows and y has shape \(10,\)"),
        (MODEL, (WHOLE.x * np.nan, WHOLE.y), {}, DataError, "data: x is nan in row 0, step 0, input 0"),
        (Classifier(2, 6, 2), (WHOLE.x, WHOLE.y), {}, DataError, "y of the train part is 2 in row .*, expected 0 to 1"),
        (
            Classifier(3, 6, 3),
            (WHOLE.x, WHOLE.y),
            {},
            ValueError,
            "n_in is 3, expected 2, the inputs a step",
        ),
        (MODEL, DATA, {"valid": 0.2}, ValueError, r"valid and test are parts of arrays \(x, y\), and data is a Images"),
        (MODEL, WHOLE.x, {}, TypeError, "data is a ndarray, expected"),
        (MODEL, 7, {}, TypeError, "data is a int, expected"),
    ],
)
def test_bad_data(model: Any, data: Any, how: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        minadv.fit(model, data, epochs=1, **how)


def test_whole_numbers_are_no_inputs() -> None:
    pixels = Split((255 * WHOLE.x).astype(np.uint8), WHOLE.y)
    with pytest.raises(TypeError, match="x of the train part has dtype uint8, expected float32 or float64"):
        minadv.fit(MODEL, pixels, epochs=1)
    assert minadv.fit(MODEL, ((10 * WHOLE.x).astype(int), WHOLE.y), epochs=1, **QUICK).config["dtype"] == "float32"
