r"""Training with unlabelled examples beside labelled ones: who can use them, and how two batches make one step.

The loss of a step that reads B labelled and B' unlabelled examples is

.. math:: \frac1B \sum_{b\ \text{labelled}} NLL_b + \frac{w}{B + B'} \sum_{b\ \text{of both}} R_b
"""

from __future__ import annotations

from dataclasses import replace

from minadv.backend import namespace
from minadv.base.trees import tree_add
from minadv.regularizers import VD, Plain, Regularizer, Sum, Term


def uses_unlabelled(regularizer: Regularizer) -> bool:
    """Whether a regularizer has something to say of examples without labels."""
    if isinstance(regularizer, Sum):
        return not regularizer.needs_targets and any(map(uses_unlabelled, regularizer.parts))
    return not (isinstance(regularizer, Plain | VD) or regularizer.needs_targets)


def added(one: Term, other: Term) -> Term:
    """The sum of two terms: the term of the examples of both."""
    join = namespace(one.value).concatenate
    nll = one.nll if other.nll is None else join([one.nll, other.nll])
    return replace(one, value=join([one.value, other.value]), grads=tree_add(one.grads, other.grads), nll=nll)
