"""Divergence is named, with its remedies, and not where training is well or a number is bad for another reason."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minadv
from minadv.training.clip import Clip
from minadv.training.divergence import DivergenceWarning, Losses, remedies
from minadv.training.loop import Recipe, TrainingError, train
from minadv.training.optimizers import SGD, Adam
from minadv.training.schedules import Constant
from tests.support.problems import MODEL, Around, Poisoned, sequences, task


class Growing(Around):
    """A task whose losses are given."""

    def __init__(self, task: Any, losses: list[float]) -> None:
        super().__init__(task)
        self.losses = losses

    def term(self, params: Any, step: int, **given: Any) -> Any:
        term, carry = self.task.term(params, step, **given)
        return replace(term, nll=0 * term.nll + self.losses[step]), carry


def test_a_loss_that_grows_is_called_divergence_once(put: Any) -> None:
    toy = Growing(task(put), [2.0, 19.0, 1e3, 1e4, 1e5])
    recipe = Recipe(steps=5, eval_every=1, optimizer=SGD(0.5))
    with pytest.warns(DivergenceWarning) as said:
        train(toy, recipe)
    [text] = [str(warning.message) for warning in said]
    assert text.startswith("training diverges: the loss was 2 at step 1 and is 1e+03 now; lower the learning rate ")
    assert text.endswith("which is 0.5, or clip the gradient below 1")


@pytest.mark.parametrize("losses", [[2.0, 19.0, 3.0], [0.001, 0.9, 0.02]])
def test_a_loss_that_rises_a_little_is_not(losses: list[float], put: Any) -> None:
    train(Growing(task(put), losses), Recipe(steps=3, eval_every=1))  # a warning would be an error


def test_a_run_that_goes_on_remembers_its_first_loss() -> None:
    losses = Losses([{"step": 0, "train_loss": None}, {"step": 5, "train_loss": 2.0}, {"step": 10, "train_loss": 1.0}])
    losses.warn(Recipe(steps=1), {"train_loss": None})  # of no step
    losses.add(11, 50.0)
    with pytest.warns(DivergenceWarning, match="the loss was 2 at step 5 and is 40 now"):
        losses.warn(Recipe(steps=1), {"train_loss": 40.0})
    losses = Losses(
        [{"step": 5, "train_loss": 2.0}, {"step": 10, "train_loss": 70.0}, {"step": 11, "train_loss": None}]
    )
    assert "the loss was 2 at step 5 and 70 at 10, " in losses.said(Recipe(steps=1), {})


@pytest.mark.filterwarnings("ignore:training diverges")
def test_a_number_that_is_not_finite_after_divergence(put: Any) -> None:
    toy = Poisoned(Growing(task(put), [2.0, 40.0, 1e9, 1e9]), 3, "V", np.inf)
    with pytest.raises(TrainingError) as caught:
        train(toy, Recipe(steps=4, optimizer=SGD(0.5), clip=None))
    said = str(caught.value)
    assert said.startswith("training has diverged: the loss was 2 at step 1 and 1e+09 at 3, the largest weight is ")
    assert (
        "lower the learning rate (lr, --lr), which is 0.5, or limit the gradient (clip=Clip(1.0), --clip 1): " in said
    )
    assert said.endswith("the gradient is not finite at step 3 (V); the last good checkpoint is none")


def test_huge_weights_have_diverged(put: Any) -> None:
    """Even if the loss is not known to have grown."""
    assert "the largest weight is 2e+05 (V)" in Losses([]).said(Recipe(steps=1), {"V": np.array([-2e5])})


@pytest.mark.parametrize(
    ("first", "loss", "diverged"), [(2.0, 20.0, False), (2.0, 20.1, True), (0.001, 1.0, False), (0.001, 1.1, True)]
)
def test_a_loss_has_diverged_at_ten_times_that_of_the_first_step_and_above_one(
    first: float, loss: float, diverged: bool
) -> None:
    losses = Losses([])
    losses.add(1, first)
    losses.add(2, loss)
    assert bool(losses.said(Recipe(steps=1), {"V": np.ones(2)})) == diverged
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        losses.warn(Recipe(steps=1), {"train_loss": loss})
    assert bool(said) == diverged


@pytest.mark.parametrize(("size", "diverged"), [(9_999, False), (10_000, False), (10_001, True)])
def test_weights_beyond_every_usual_scale_have_diverged(size: float, diverged: bool) -> None:
    assert bool(Losses([]).said(Recipe(steps=1), {"V": np.array([0.0, -size, 1.0])})) == diverged


def test_another_bad_number_is_no_divergence(put: Any) -> None:
    with pytest.raises(TrainingError, match=r"^the gradient is not finite at step 2"):
        train(Poisoned(task(put), 2, "V", np.nan), Recipe(steps=4))


def test_the_loss_is_told_where_it_has_grown() -> None:
    losses = Losses([])
    losses.add(1, 2.0)
    losses.add(2, 200.0)
    said = losses.said(Recipe(steps=1), {"V": np.array([3.0, -7.0]), "n": np.array([9])})
    assert said.startswith(
        "training has diverged: the loss was 2 at step 1 and 200 at 2, the largest weight is 7 (V); "
    )
    assert Losses([]).said(Recipe(steps=1), {"V": np.ones(2)}) == ""
    assert Losses([]).said(Recipe(steps=1), {"steps": 3, "E": np.ones((0, 2))}) == ""
    assert Losses([]).said(Recipe(steps=1), {}) == ""


def test_remedies_are_not_what_is_set() -> None:
    assert remedies(Recipe(steps=1, optimizer=Adam(0.1), clip=Clip(0.25))).endswith("or clip the gradient below 0.25")
    assert "limit the gradient" in remedies(Recipe(steps=1, clip=None))


def test_an_optimizer_of_another_make_may_have_no_rate() -> None:
    class Own:
        def init(self, params: Any) -> Any: ...

        def step(self, params: Any, grads: Any, state: Any, *, lr_scale: float = 1.0) -> Any: ...

    said = remedies(Recipe(steps=1, optimizer=Own()))
    assert said == "lower the learning rate (lr, --lr), or clip the gradient below 1"


def test_steps_are_told() -> None:
    seen: list[Any] = []
    run = minadv.fit(MODEL, sequences(), steps=4, eval_every=2, batch_size=10, on_step=seen.append, progress=False)
    assert [record["step"] for record in seen] == [1, 2, 3, 4]
    assert seen[0].keys() == {"step", "epoch", "loss", "regularizer"}
    assert np.mean([record["loss"] for record in seen[:2]]) == pytest.approx(run.records[0]["train_loss"])


@pytest.mark.parametrize("callback", ["on_step", "on_evaluation"])
def test_a_callback_ends_the_training(callback: str, tmp_path: Any) -> None:
    """Its step is evaluated and saved as a last one is, and the run can be trained further."""
    pytest.importorskip("safetensors")
    saved: list[Any] = []

    def enough(record: dict[str, Any]) -> None:
        if record["step"] == 3:
            raise minadv.Stop

    how: dict[str, Any] = {"steps": 6, "batch_size": 10, "progress": False, "lr_schedule": Constant()}
    how |= {"eval_every": 3 if callback == "on_evaluation" else 2, "out": tmp_path / "run"}
    run = minadv.fit(MODEL, sequences(), **{callback: enough}, on_checkpoint=saved.append, **how)
    assert (run.step, run.records[-1]["step"]) == (3, 3)
    assert [path.name for path in saved][-1] == "step-00000003.json"
    assert all(path.exists() for path in saved)
    assert minadv.load(tmp_path / "run").step == 3
    assert minadv.fit(MODEL, sequences(), resume=True, **how).step == 6
