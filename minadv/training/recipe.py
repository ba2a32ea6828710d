r"""A recipe: how to train, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass, field

from minadv.base.numbers import Many, Steps, Weight
from minadv.base.schema import expect_fields
from minadv.training.clip import Clip
from minadv.training.ema import EMA
from minadv.training.optimizers import Adam, Optimizer
from minadv.training.schedules import Constant, Schedule, expect_schedule


@dataclass(frozen=True)
class Recipe:
    """How to train, whatever the task. Counts are in steps unless a comment says otherwise.

    The learning rate is multiplied by ``lr_schedule``, a function of the epoch, and by ``step_schedule``, one of the
    step's number.
    """

    steps: Steps
    optimizer: Optimizer = field(default_factory=lambda: Adam(1e-3))
    clip: Clip | None = field(default_factory=lambda: Clip(1.0))
    lr_schedule: Schedule = field(default_factory=Constant)
    step_schedule: Schedule = field(default_factory=Constant)
    weight: Weight = 1.0  # of the regularizer
    weight_schedule: Schedule = field(default_factory=Constant)
    ema: EMA | None = None  # evaluate with averaged weights
    eval_every: Steps | None = None  # default: an epoch
    eval_first: bool = False  # also before the first step, for weights that are good already
    checkpoint_every: Steps | None = None  # default: as often as evaluations
    keep: Many = 3  # checkpoints
    monitor: str = "error"  # the validation metric that chooses the best weights
    patience: Many | None = None  # stop after this many evaluations that are no better than the best
    watch_adversary: Many | None = None  # log the strength of AdD's search at every so many evaluations

    def __post_init__(self) -> None:
        expect_fields(self)
        for name in ("lr_schedule", "step_schedule", "weight_schedule"):
            expect_schedule(name, getattr(self, name))
