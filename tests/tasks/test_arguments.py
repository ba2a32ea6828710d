"""Mistakes that are easily made have a sentence each, and the defaults of `fit` are those of the command line."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.cli import build_parser
from minadv.data.images import Images
from minadv.models.classifier import Classifier
from minadv.regularizers import AdD
from minadv.searches import Greedy, Relax, Reselect
from minadv.tasks.arguments import expect_how
from minadv.tasks.family import of_kind, of_task
from minadv.tasks.recipes import choose_recipe
from minadv.training.clip import Clip
from minadv.training.loop import Recipe
from minadv.training.optimizers import SGD, Adam
from minadv.training.schedules import Constant, RampDown, RampUp
from tests.support.problems import MODEL, sequences

DATA: Images = sequences()


class Halfway:
    """What a first try at a model of one's own may look like."""

    sites = ()

    def body(self, *given: Any, **more: Any) -> Any:
        raise AssertionError


SENTENCES: list[tuple[dict[str, Any], str]] = [
    (
        {"regularizer": "add"},
        r"regularizer is 'add', expected a record of minadv.regularizers, such as AdD\(delta=0.03\)",
    ),
    ({"regularizer": AdD}, r"regularizer is the class AdD, expected a record: AdD\(\)"),
    (
        {"regularizer": lambda net: 0},
        "regularizer is .*, expected a subclass of minadv.regularizers.Regularizer, with a",
    ),
    (
        {"optimizer": "adam"},
        r"optimizer is 'adam', expected a record such as Adam\(lr=0.005\) of minadv.training.optimi",
    ),
    ({"optimizer": Adam}, r"optimizer is the class Adam, expected a record such as Adam\(lr=0.005\)"),
    ({"clip": 1.0}, r"clip is 1.0, expected a record such as Clip\(1.0\) of minadv.training.clip"),
    ({"ema": 0.999}, r"ema is 0.999, expected a record such as EMA\(0.999\)"),
    ({"lr_schedule": "cosine"}, r"lr_schedule is 'cosine', expected a record such as RampDown"),
    ({"weight_schedule": 10}, r"weight_schedule is 10, expected a record such as RampUp"),
    ({"out": 3}, "out is 3, expected the name of the folder to write, or None"),
    ({"on_step": lambda: 0}, "on_step is <function .*, expected a function that can be called with one argument"),
    ({"rng": 0}, "rng is 0: fit draws its random numbers from a seed, give seed=0 instead"),
    ({"dropout": 0.5}, r"dropout: expected settings of a Classifier \(batch_size, track\), lr, or fields of a Recipe"),
    ({"model": Classifier}, r"model is the class Classifier, expected a model: Classifier\(...\)"),
    (
        {"model": Halfway()},
        "model is a Halfway, which lacks noise, body_backward, head, compare, init, logits: expected",
    ),
    (
        {"model": SimpleNamespace()},
        r"model is a SimpleNamespace, .*; minadv.check_model\(model, batch\) says what else",
    ),
    ({"recipe": {"steps": 3}}, r"recipe is {'steps': 3}, expected a minadv.training.loop.Recipe, or a function"),
    ({"recipe": lambda per_epoch: per_epoch}, "recipe makes 12, expected a minadv.training.loop.Recipe"),
]


@pytest.mark.parametrize(("given", "said"), SENTENCES, ids=[said for _, said in SENTENCES])
def test_a_sentence_each(given: dict[str, Any], said: str) -> None:
    how = {"model": MODEL, "data": DATA, **({} if "recipe" in given else {"epochs": 1}), **given}
    with pytest.raises(TypeError, match=said):
        minadv.fit(**how)


def test_a_module_of_pytorch_has_a_sentence() -> None:
    """Known by where its class was written, so that torch need not be there to say it."""
    module = type("LSTM", (), {"__module__": "torch.nn.modules.rnn"})()
    with pytest.raises(TypeError, match=r"model is LSTM, a module of PyTorch, .*Classifier.from_torch\(module\) takes"):
        minadv.fit(module, DATA, epochs=1)


def chosen(**options: Any) -> Recipe:
    return choose_recipe(of_kind("classify"), 10, None, options.pop("epochs", None), options)


@pytest.mark.parametrize("epochs", [None, 3])
@pytest.mark.parametrize("task", ["digits", "lm"])
def test_the_defaults_are_those_of_the_command_line(task: str, epochs: int | None) -> None:
    family = of_task(task)
    args = build_parser().parse_args(["train", task, *([] if epochs is None else ["--epochs", str(epochs)])])
    made = family.arguments.__globals__["recipe"](args, 10)
    ours = choose_recipe(family, 10, None, epochs, {})
    if task == "lm":  # a ramp of no epochs is none
        ours = dataclasses.replace(ours, weight_schedule=RampUp(0))
    assert ours == made


def test_what_is_given_comes_first() -> None:
    assert chosen().steps == 400
    assert chosen(steps=7).lr_schedule == RampDown(0.7, 0.175)
    assert chosen(epochs=8, lr_schedule=Constant()).lr_schedule == Constant()
    assert chosen(epochs=8).weight_schedule == RampUp(2)
    assert chosen(lr=0.25).optimizer == Adam(0.25)
    assert chosen(optimizer=SGD(0.1), clip=None).clip is None
    assert chosen().clip == Clip(1.0)
    with pytest.raises(ValueError, match=r"lr is 0.1 and optimizer is SGD\(.*\): give one of the two"):
        chosen(lr=0.1, optimizer=SGD(0.1))
    with pytest.raises(ValueError, match="lr is -1, expected a positive number"):
        chosen(lr=-1)
    with pytest.raises(ValueError, match="give epochs, steps or a recipe, one of them"):
        chosen(epochs=1, steps=1)
    with pytest.raises(ValueError, match=r"a recipe was given, and \['lr'\] besides"):
        choose_recipe(of_kind("classify"), 10, Recipe(steps=1), None, {"lr": 0.1})


def test_the_learning_rate_of_a_run() -> None:
    one, two = (minadv.fit(MODEL, DATA, steps=1, lr=lr, clip=None, progress=False).last.V for lr in (0.01, 0.02))
    start = minadv.fit(MODEL, DATA, steps=1, lr=1e-30, progress=False).last.V
    np.testing.assert_allclose(two - start, 2 * (one - start), rtol=1e-3)


def test_a_run_to_go_on_with_is_named() -> None:
    with pytest.raises(ValueError, match=r"^resume is True and out is None: give out, the folder of the run"):
        minadv.fit(MODEL, DATA, steps=1, resume=True)


@pytest.mark.parametrize("run", [None, 3, []])
def test_a_run_has_a_name(run: Any) -> None:
    for door in (minadv.load, minadv.resume):
        with pytest.raises(TypeError, match=r"^run is .*, expected the name of a run's folder$"):
            door(run)


def test_what_can_be_called_with_one_argument() -> None:
    expect_how(on_step=print, on_evaluation=[].append, on_checkpoint=lambda *several: 0, on_step_time=lambda a, b: 0)
    expect_how(on_step=dict)  # which does not tell its arguments
    with pytest.raises(TypeError, match=r"^on_checkpoint is <function"):
        expect_how(on_checkpoint=lambda a, b: 0)


@pytest.mark.parametrize("name", ["readout", "steps", "leak", "engine", "cell", "buffers"])
def test_an_array_is_no_choice(name: str) -> None:
    given: dict[str, Any] = {name: np.arange(3)}
    with pytest.raises(ValueError, match=rf"^{name} is array\(\[0, 1, 2\]\), expected"):
        Classifier(3, 5, 3, **given)


@pytest.mark.parametrize("search", [Greedy, Reselect, Relax])
def test_an_array_is_no_choice_of_a_search(search: Any) -> None:
    for field in dataclasses.fields(search):
        if isinstance(field.default, str) or field.name in ("norm", "variant"):
            with pytest.raises(ValueError, match=rf"^{field.name} is array\(\[0, 1, 2\]\), expected one of"):
                search(**{field.name: np.arange(3)})
