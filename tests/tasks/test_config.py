"""Configurations come back from JSON as they were; a file can name the known records and nothing else."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from minadv import regularizers as reg
from minadv.models import Classifier, LanguageModel, TextClassifier, TextLM
from minadv.searches import Exact, Greedy, Memory, Random, Relax, Reselect
from minadv.tasks import config
from minadv.tasks.config import KINDS, ConfigError, Own, build, describe, register
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.optimizers import ASGD, SGD, Adam, RMSProp
from minadv.training.schedules import Constant, ExponentialDecay, RampDown, RampUp

RECORDS = [
    Own("mine.Model"),
    Classifier(2, 6, 3, cell="gru", n_layers=2, readout="masked", steps="all", input_dropout=0.2),
    TextClassifier(9, 3, 4, truncate=5),
    TextLM(9, 3, 4, n_candidates=5),
    LanguageModel(9, 4, (5, 4), word_dropout=0.1, alpha=2.0),
    Clip(0.25, "value", only=("cells.0", "V"), but=("V",)),
    EMA(0.99, warm=True),
    SGD(0.1, momentum=0.9),
    RMSProp(1e-3),
    Adam(5e-4, beta1=0.8),
    ASGD(30.0, weight_decay=1.2e-6, interval=None),
    Constant(0.1 + 0.2),
    RampUp(3.5),
    RampDown(250, 50),
    ExponentialDecay(0.9998),
    reg.Plain(),
    reg.VD(p=0.3, sites=("layer0",)),
    reg.EL(p=1 / 3, distance="kl", stop_base=True),
    reg.FD(distance="logit2", share_noise=False),
    reg.Pi(p=0.2),
    reg.RDrop(p=0.2, share_noise=False),
    reg.AdD(delta={"layer0": 0.06, "layer1": 0.1}, search=Greedy(K=2, rule="paper", norm="l2", keep="last")),
    reg.AdD(budgets=3, search=Reselect(K=1, swaps=1), scale="kept", sites=("readout",)),
    reg.AdD(budgets=1, search=Exact(max_masks=500)),
    Greedy(K=3, rule="authors", variant="text", start="base"),
    Reselect(K=3),
    Relax(stages=(4, 2), reselect=1, borrow=2, swaps=4),
    Memory(fresh=4, tries=2),
    Exact(),
    Random(tries=4),
    reg.AT(norm=2.0),
    reg.VAT(xi=1e-3),
    reg.Sum((reg.AdD(delta=0.04), reg.VAT()), weights=(1.0, 0.5)),
]


def test_every_kind_is_tried() -> None:
    assert {type(record) for record in RECORDS} == set(KINDS.values())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip(record: Any) -> None:
    described = json.loads(json.dumps(describe(record)))
    assert build(described) == record
    assert type(build(described)) is type(record)
    assert described["kind"] == type(record).__name__
    assert described.keys() == {"kind", *(f.name for f in dataclasses.fields(record) if f.metadata.get("config", True))}


def test_containers() -> None:
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": (Adam(0.1),)}}
    assert build(json.loads(json.dumps(describe(value)))) == {"a": (1, 2.5, None, True, "x"), "b": {"c": (Adam(0.1),)}}


VERSION_0_1 = json.loads("""{
    "kind": "AdD", "delta": 0.03, "budgets": null, "adv_steps": 2, "distance": "js", "lam": null, "scale": "none",
    "p": null, "search": "reselect", "rule": "strict", "rule_options": {}, "init": "flip", "keep": "last", "swaps": 3,
    "tries": 1, "max_masks": 200000, "stop_base": false, "share_noise": true, "sites": null
}""")


@pytest.mark.parametrize(
    ("given", "search"),
    [
        ({}, Reselect(K=2, swaps=3)),
        ({"adv_steps": 1, "swaps": 0, "init": "base"}, Reselect(K=1, start="base")),
        (
            {"search": "greedy", "rule": "paper", "rule_options": {"norm": "l2"}, "init": "base"},
            Greedy(K=2, rule="paper", norm="l2", start="base", keep="last"),
        ),
        (
            {"search": "greedy", "rule": "authors", "rule_options": {"variant": "text"}, "keep": "best"},
            Greedy(K=2, rule="authors", variant="text"),
        ),
        ({"search": "greedy", "rule_options": {"allow_unflip": False}}, Greedy(K=2, allow_unflip=False, keep="last")),
        ({"search": "exact", "max_masks": 50}, Exact(max_masks=50)),
        ({"search": "random", "tries": 7}, Random(tries=7)),
    ],
    ids=lambda given: given.name if hasattr(given, "name") else "",
)
def test_an_add_that_version_0_1_described(given: dict[str, Any], search: Any) -> None:
    """It held the options of every search itself; of those only the ones of its own search mattered."""
    built = build({**VERSION_0_1, **given})
    assert built == reg.AdD(delta=0.03, search=search)
    assert build(describe(built)) == built
    whole = build({"kind": "Sum", "parts": [{**VERSION_0_1, **given}, describe(reg.VAT())], "weights": None})
    assert whole == reg.Sum((reg.AdD(delta=0.03, search=search), reg.VAT()))


def test_an_add_of_version_0_1_keeps_its_other_fields() -> None:
    other = {"delta": None, "budgets": {"layer0": 3}, "distance": "kl", "scale": "inverted", "p": 0.2}
    built = build({**VERSION_0_1, **other, "stop_base": True, "share_noise": False, "sites": ["layer0"]})
    options = {**other, "stop_base": True, "share_noise": False, "sites": ("layer0",)}
    assert built == reg.AdD(search=Reselect(K=2, swaps=3), **options)
    with pytest.raises(ConfigError, match=r"config does not fit AdD: .*unexpected keyword argument 'delt'"):
        build({**VERSION_0_1, "delt": 0.5})


@dataclasses.dataclass(frozen=True)
class Mine:
    lr: float = 0.1


def test_a_kind_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"recipe.optimizer is a Mine, expected one of ASGD, AT, Ad"):
        describe(Mine(), "recipe.optimizer")
    monkeypatch.setattr(config, "KINDS", dict(KINDS))
    register(Mine)
    assert build(describe(Mine(3.0))) == Mine(3.0)


def test_another_class_of_a_known_name_is_no_known_kind() -> None:
    impostor = dataclasses.make_dataclass("Adam", [("lr", float)])
    with pytest.raises(ConfigError, match="config is a Adam, expected one of"):
        describe(impostor(0.1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda at: 1.0, "recipe.lr is a function, which a run's configuration cannot hold"),
        ({"lam": np.ones(3)}, "recipe.lr.lam is a ndarray, which"),
        ([1, {2}], r"recipe.lr\[1\] is a set, which"),
        (Adam, "recipe.lr is a type, which"),
    ],
)
def test_what_cannot_be_described(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        describe(value, "recipe.lr")


@pytest.mark.parametrize("kind", ["Nothing", "os.system", "builtins.eval", "__import__", "type", "", None, 3])
def test_unknown_kinds_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"recipe\.clip is of kind .*, expected one of ASGD, AT"):
        build({"kind": kind, "command": "touch pwned"}, "recipe.clip")


def test_fields_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"model.inner does not fit Adam: .*unexpected keyword argument 'speed'"):
        build({"inner": {"kind": "Adam", "lr": 0.1, "speed": 3}}, "model")
    with pytest.raises(ConfigError, match=r"config does not fit ExponentialDecay: .*missing"):
        build({"kind": "ExponentialDecay"})
    with pytest.raises(ValueError, match="limit is -1, expected a positive number"):
        build({**describe(Clip(1.0)), "limit": -1})
