r"""The rows of Table 2, and the settings that each is tried in."""

from __future__ import annotations

from dataclasses import dataclass, fields

from minadv.regularizers import AT, EL, FD, VAT, VD, AdD, Plain, RDrop, Regularizer, Sum
from minadv.searches import by_name
from minadv.tasks.methods import VARIANTS

METHODS = {
    "none": 1,
    "AT": 2.2,
    "VAT": 5,
    "VD": 1,
    "EL": 3.5,
    "FD": 3.5,
    "AdD last": 4,
    "AdD K=1": 4,
    "AdD K=2": 5,
    "AdD K=1 + VAT": 9,
    "AdD K=2 + VAT": 10,
    "AdD reselect": 6.5,
}
"""The rows in their order, each with about how many times as long a step takes as one of ``none``."""

AVAILABLE = METHODS | {"RDrop": 3.5}
"""The rows that ``--methods`` may name: the table's own, and R-Drop, which is run only where it is named."""

SUMS = {"AdD K=1 + VAT": ("AdD K=1", "VAT"), "AdD K=2 + VAT": ("AdD K=2", "VAT")}


@dataclass(frozen=True)
class Setting:
    """How strong a method is: p of VD, EL, FD and RDrop, delta of AdD, the norm of AT and VAT, and its weight."""

    p: float = 0.1
    delta: float = 0.04
    norm: float = 5.0
    weight: float = 1.0


def settings(method: str) -> list[Setting]:
    """The three settings that each method is tried in; the first is the paper's where it says one."""
    if method == "none":
        return [Setting()]
    if method == "VD":
        return [Setting(p=0.1), Setting(p=0.2), Setting(p=0.4)]
    if method in ("EL", "FD", "RDrop"):
        return [Setting(p=0.1), Setting(p=0.2), Setting(p=0.2, weight=3.0)]
    if method == "AT":  # only a weak AT lets a network that knows nothing yet learn
        return [Setting(norm=5.0), Setting(norm=1.0), Setting(norm=0.2)]
    if method == "VAT":
        return [Setting(norm=5.0), Setting(norm=2.0), Setting(norm=10.0)]
    return [Setting(delta=0.04), Setting(delta=0.08), Setting(delta=0.08, weight=3.0)]


def regularizer(method: str, s: Setting, variant: str = "minadv") -> Regularizer:
    """The regularizer of a method in a setting, AdD in one of its variants; other methods' passes share their noise."""
    simple: dict[str, Regularizer] = {
        "none": Plain(),
        "AT": AT(s.norm),
        "VAT": VAT(s.norm),
        "VD": VD(s.p),
        "EL": EL(s.p),
        "FD": FD(s.p),
        "RDrop": RDrop(s.p),
        "AdD last": adversarial(s, variant, "greedy", K=1, sites=("readout",)),
        "AdD reselect": adversarial(s, variant, "reselect", K=2),
    }
    if method in simple:
        return simple[method]
    add = adversarial(s, variant, "greedy", K=2 if "K=2" in method else 1)
    return Sum((add, VAT(s.norm)), weights=(s.weight, 1.0)) if method in SUMS else add


def adversarial(s: Setting, variant: str, search: str, *, K: int, sites: tuple[str, ...] | None = None) -> AdD:
    """AdD in one of its variants, which says where its search starts and by which rule it flips, among other things."""
    form = VARIANTS[variant]
    own = {field.name for field in fields(AdD)}
    given = {"init": form["init"], "rule": form.get("rule"), "variant": form.get("rule_variant")}
    chosen = by_name(search, K=K, keep="last", **given)
    return AdD(delta=s.delta, search=chosen, sites=sites, **{n: value for n, value in form.items() if n in own})


def weight(method: str, s: Setting) -> float:
    """The weight of the whole regularizer; the parts of a sum have their own."""
    return 1.0 if method in SUMS else s.weight
