r"""The progress bar of training: loss, regularizer, accuracy, rate and time left on one line; on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, TextIO

from minadv.base.pulse import Doing, doing


class Progress:
    """A thin cover over tqdm that shows nothing if its stream is not a terminal or tqdm is not installed.

        with Progress(total=steps * batch, unit="image", done=start * batch) as progress:
            progress.advance(batch, loss=0.71, regularizer=0.02, accuracy=0.88)

    ``done`` is what was done before a run was resumed: it counts for the bar, not for the rate. Values stay on the bar
    until new ones are given; tqdm itself adds the rate and the time left.
    """

    def __init__(
        self,
        total: int,
        *,
        unit: str = "image",
        done: int = 0,
        title: str = "",
        shown: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._shown: dict[str, str] = {}
        self._bar: Any = None
        self._doing = doing("training", total, f"{unit}s", done=done, bar=False)
        self._work: Doing | None = None
        stream = sys.stderr if stream is None else stream
        if not shown or not stream.isatty():
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self._bar = tqdm(
            total=total,
            initial=done,
            unit=f" {unit}",
            unit_scale=True,
            desc=title or None,
            file=stream,
            dynamic_ncols=True,
            mininterval=0.2,
        )

    def advance(self, n: int, **values: float | str | None) -> None:
        """Move the bar on by n, and show the values; None leaves one out."""
        self._shown.update({name: _text(value) for name, value in values.items() if value is not None})
        if self._work is not None:
            self._work.advance(n, ", ".join(f"{name} {text}" for name, text in self._shown.items()))
        if self._bar is None:
            return
        self._bar.set_postfix_str(", ".join(f"{name} {text}" for name, text in self._shown.items()), refresh=False)
        self._bar.update(n)

    def __enter__(self) -> Progress:
        self._work = self._doing.__enter__()
        if self._bar is not None:
            self._work.bar = _Silent()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._doing.__exit__(kind, error, trace)
        if self._bar is not None:
            self._bar.close()


class _Silent:
    """Stands for the bar of work that has one already."""

    def update(self, n: int) -> None:
        """Nothing: the bar itself is told."""

    def close(self) -> None:
        """Nothing: the bar is closed by its owner."""


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
