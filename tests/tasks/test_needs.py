"""What a run needs is known from its sizes, before anything is drawn; what a machine does not have is refused."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.base import machine
from minadv.base.trees import leaves
from minadv.data.images import Images, Split
from minadv.models import Classifier, LanguageModel, TextClassifier, TextLM
from minadv.regularizers import FD, AdD, Plain
from minadv.tasks import needs
from minadv.tasks.fit import plan
from minadv.training.ema import EMA
from minadv.training.loop import Recipe
from minadv.training.optimizers import ASGD, SGD, Adam, RMSProp

MODELS = [
    *(Classifier(2, 5, 3, cell=cell, n_layers=n) for cell in ("rnn", "lstm", "gru") for n in (1, 3)),
    *(TextClassifier(9, 3, 4, cell=cell, n_layers=2, n_relu=6) for cell in ("rnn", "lstm", "gru")),
    TextClassifier(9, 3, 4, output="sigmoid"),
    TextLM(9, 3, 4, n_candidates=5, cell="gru"),
    LanguageModel(9, 4, (5, 4)),
    LanguageModel(9, 3, (5, 4), tied=False),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_number_of_parameters(model: Any) -> None:
    drawn = model.init(np.random.default_rng(0), dtype=np.float32)
    assert model.n_params == sum(leaf.size for _, leaf in leaves(drawn))


@pytest.mark.parametrize(
    ("optimizer", "n"), [(SGD(0.1), 0), (SGD(0.1, 0.9), 1), (RMSProp(0.1), 1), (Adam(0.1), 2), (ASGD(1.0), 1)]
)
@pytest.mark.parametrize("ema", [None, EMA(0.9)])
def test_what_the_optimizer_holds(optimizer: Any, n: int, ema: Any) -> None:
    assert needs._like_parameters(Recipe(1, optimizer, ema=ema)) == n + (ema is not None)


def images(T: int, n: int = 60) -> Images:
    rng = np.random.default_rng(0)
    split = Split(rng.standard_normal((n, T, 1)).astype(np.float32), np.arange(n) % 3)
    return Images("toy", 3, split, split, split)


@pytest.mark.parametrize(
    ("model", "T", "B", "regularizer"),
    [
        (Classifier(1, 60, 3), 50, 60, Plain()),
        (Classifier(1, 60, 3, cell="gru"), 50, 60, AdD(delta=0.1)),
        (Classifier(1, 60, 3, engine="plain"), 50, 60, FD()),
        (Classifier(1, 300, 3), 3, 5, AdD(delta=0.1)),
    ],
    ids=["passes", "gru", "plain engine", "weights"],
)
def test_the_estimate_is_near_the_peak(model: Any, T: int, B: int, regularizer: Any, device: Any) -> None:
    if device.name == "gpu":
        pytest.skip("the memory that is traced is that of the host")
    planned = plan(model, images(T), regularizer=regularizer, batch_size=B, steps=2)
    assert planned.needs is not None
    planned.train(workers=1, progress=False)  # loads and compiles, which takes memory once
    tracemalloc.start()
    try:
        planned.train(workers=1, progress=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.4 < planned.needs.memory / peak < 2.5


@pytest.mark.parametrize(
    ("model", "lower"),
    [
        (Classifier(1, 10**7, 3), r"lower n_hidden \(--hidden\), which is 10,000,000$"),
        (Classifier(1, 10**4, 3, n_layers=1000), r"lower n_hidden \(--hidden\), which is 10,000$"),
    ],
)
def test_a_network_that_no_machine_has(model: Any, lower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_: object, **__: object) -> None:
        raise AssertionError("parameters were drawn")

    monkeypatch.setattr(Classifier, "init", drawn)
    monkeypatch.setattr(machine, "available_memory", lambda: 2**35)
    with pytest.raises(ValueError, match=r"^the run needs [\d,]+ parameters, .* 32 GiB are available: " + lower):
        minadv.fit(model, images(2), regularizer=AdD(delta=0.1), steps=1, batch_size=2, device="cpu")


def test_the_size_to_lower(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    small = Classifier(1, 50, 3)
    planned = plan(small, images(100), batch_size=60, steps=1)
    assert planned.needs is not None
    there = planned.needs.memory
    monkeypatch.setattr(machine, "available_memory", lambda: there)
    plan(small, images(100), batch_size=60, steps=1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(machine, "available_memory", lambda: there - 1)  # it may fit: an estimate is no more than that
    plan(small, images(100), batch_size=60, steps=1)
    assert capsys.readouterr().err.endswith("lower batch_size (--batch), which is 60, if memory runs out\n")
    monkeypatch.setattr(machine, "available_memory", lambda: (there - 1) // 2)
    with pytest.raises(ValueError, match=r"lower batch_size \(--batch\), which is 60$"):
        plan(small, images(100), batch_size=60, steps=1)
    assert needs._largest(LanguageModel(10**6, 10, (10, 10))) == ("n_words", 10**6)
    assert needs._largest(LanguageModel(10, 10, (5000, 10))) == ("hidden", (5000, 10))
    monkeypatch.setattr(machine, "available_memory", lambda: None)  # a system that does not tell
    plan(small, images(100), batch_size=60, steps=1)


class Unread(np.ndarray):
    """An array whose numbers are not to be read."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError(f"{func} reads x")

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{args} reads x")


@pytest.mark.parametrize("form", ["array", "rows", "list"])
def test_sequences_too_long_for_any_machine_are_refused_unread(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 2**34)
    x: Any = np.broadcast_to(np.float32(0), (60, 10**9, 3) if form == "array" else (60, 10**9)).view(Unread)
    x = [np.broadcast_to(np.float32(0), (n, 3)).view(Unread) for n in (5, 10**9)] if form == "list" else x
    y = np.arange(len(x)) % 3
    model = Classifier(3 if form != "rows" else 1, 5, 3)
    with pytest.raises(ValueError, match=rf"^x holds {len(x)} sequences of up to 1,000,000,000 steps, which need"):
        minadv.fit(model, (x, y), epochs=1, progress=False, device="cpu")
    given = {"valid": (np.zeros((2, 1)), [0, 1]), "test": (np.zeros((2, 1)), [0, 1])}  # x is not parted, nor copied
    with pytest.raises(ValueError, match=r"one at a time, and 16 GiB are available: give shorter ones$"):
        minadv.fit(model, (x, y), epochs=1, progress=False, device="cpu", **given)


def test_available_memory() -> None:
    there = machine.available_memory()
    assert there is None or 0 <= there < 2**60


@pytest.mark.parametrize(
    ("n", "words"), [(5, "5 B"), (1536, "1.5 KiB"), (20 * 2**20, "20 MiB"), (2**33, "8.0 GiB"), (2**54, "16 PiB")]
)
def test_bytes_in_words(n: int, words: str) -> None:
    assert needs.in_words(n) == words


BAD: list[tuple[dict[str, Any], str]] = [
    ({"steps": 1.5}, "steps is 1.5, expected a whole number of at least 1"),
    ({"steps": True}, "steps is True, expected a whole number of at least 1"),
    ({"steps": float("nan")}, "steps is nan, expected a whole number of at least 1"),
    ({"steps": 10**30}, "steps is 10{30}, expected at most 4,294,967,295"),
    ({"epochs": float("inf")}, "epochs is inf, expected a positive number, or None"),
    ({"epochs": True}, "epochs is True, expected a positive number, or None"),
    ({"steps": 1, "batch_size": True}, "batch_size is True, expected a whole number of at least 1"),
    ({"steps": 1, "batch_size": 2.0}, "batch_size is 2.0, expected a whole number of at least 1"),
    ({"steps": 1, "seed": True}, "seed is True, expected a whole number of at least 0"),
    ({"steps": 1, "workers": 1.5}, "workers is 1.5, expected a whole number of at least 1, or None"),
    ({"steps": 1, "weight": float("nan")}, "weight is nan, expected zero or a positive number"),
    ({"steps": 1, "patience": True}, "patience is True, expected a whole number of at least 1, or None"),
    ({"steps": 1, "optimizer": "adam"}, "optimizer is 'adam', expected a record such as Adam"),
    ({"steps": 1, "clip": 1.0}, "clip is 1.0, expected a record such as Clip"),
    ({"steps": 1, "resume": 1.5}, "resume is 1.5, expected one of True, False"),
    ({"steps": 1, "progress": []}, r"progress is \[\], expected one of True, False"),
    ({"steps": 1, "cuda_aware_mpi": "x"}, "cuda_aware_mpi is 'x', expected one of True, False, or None"),
    ({"steps": 1, "about": 1.5}, "about is 1.5, expected a table of values by name, or None"),
    ({"steps": 1, "on_step": 3}, "on_step is 3, expected a function or a record that can be called, or None"),
    ({"steps": 1, "on_evaluation": "print"}, "on_evaluation is 'print', expected a function"),
    ({"steps": 1, "device": np.arange(2)}, r"device is array\(\[0, 1\]\), expected \"auto\", \"cpu\" or \"gpu\""),
    ({"steps": 1, "track": {"speed": 1}}, "track has 'speed', expected options of minadv.find_adversary, or n"),
]


@pytest.mark.parametrize(("options", "says"), BAD, ids=[says.split(",")[0] for _, says in BAD])
def test_numbers_that_fit_refuses(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{says}"):
        minadv.fit(Classifier(1, 4, 3), images(3), **{"batch_size": 10, **options})
