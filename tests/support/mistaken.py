"""A model that is not minadv's, with one mistake."""

from dataclasses import replace

import pytest

from minadv.base.findings import ModelError
from minadv.base.trees import tree_map
from minadv.modelcheck import check_model
from tests.support.foreign_model import Leaky, example


def wrong(method, change):
    """A Leaky whose method's result is changed."""

    def changed(self, *args, **given):
        return change(getattr(Leaky, method)(self, *args, **given), self, *args, **given)

    return type("Wrong", (Leaky,), {method: changed})


def scaled(**factors):
    return lambda found, *_, **__: replace(
        found, **{n: tree_map(lambda a, f=f: f * a, getattr(found, n)) for n, f in factors.items()}
    )


def raises(*_, **__):
    raise KeyError("V")


def expect_found(rng, kind, what, said):
    """A look of this name says so of a model of this kind; on the host, since it does not depend on the place."""
    _, params, songs = example(rng, lambda tree: tree)
    report = check_model(kind(2, 4), songs, params)
    assert not report
    assert not report[what].passed
    with pytest.raises(ModelError, match=rf"(?s)FAILED.*FAIL {what}: .*{said}"):
        report.raise_if_failed()
