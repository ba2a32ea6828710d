r"""A model of one's own, held to the protocol in one call: what it lacks, its shapes, and every gradient.

::

    print(check_model(model, batch))     # a line for each finding
    assert check_model(model, batch)

Each part is run in float64 on the batch and compared with central differences (`minadv.gradcheck`): the gradients of
the body to weights, masks, inputs and first state, those of the head and of the comparison. A few examples of a
few steps will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from minadv import distances, gradcheck
from minadv.backend import Array, namespace, same_place
from minadv.base.checks import expect_generator, shape_text
from minadv.base.trees import children, leaves, tree_filled, tree_map
from minadv.protocol import Comparison, Likelihood, ModelGrads, Site, run_bodies

METHODS = ("noise", "body", "body_backward", "head", "compare")


class ModelError(AssertionError):
    """A model does not keep the protocol; the message is the report."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is as it should be, and what was found."""

    what: str
    passed: bool
    found: str = ""


@dataclass(frozen=True)
class Report:
    """All that was looked at; printing it shows a line each, and it is true if everything passed."""

    model: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def __bool__(self) -> bool:
        return self.passed

    def __getitem__(self, what: str) -> Finding:
        return {finding.what: finding for finding in self.findings}[what]

    def __str__(self) -> str:
        lines = [f"{self.model} and minadv.protocol: {'passed' if self.passed else 'FAILED'}"]
        for finding in self.findings:
            more = f": {finding.found}" if finding.found else ""
            lines.append(f"  {'ok  ' if finding.passed else 'FAIL'} {finding.what}{more}")
        return "\n".join(lines)

    def raise_if_failed(self) -> None:
        """Raise ModelError with the report as its message if anything failed."""
        if not self.passed:
            raise ModelError(str(self))


def check_model(model: Any, batch: Any, params: Any = None, *, rng: np.random.Generator | None = None) -> Report:
    """Hold a model to `minadv.protocol`, with a batch of the kind that it will be given; costs some hundred passes.

    ``params`` are drawn by ``model.init(rng, dtype=numpy.float64)`` unless they are given. Numbers of the batch and of
    the parameters are taken in float64. ``rng`` draws what is compared (default: of seed 0). Nothing is raised for what
    the model does wrong: it is in the report, which is false, and an error that the model raises is a finding too.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    expect_generator(rng)
    looked = _Looked(model, rng)
    looked.at("what it has", lambda: _protocol(model, batch, params))
    if looked.passed:
        looked.begin(batch, params)
    begun = looked.passed
    if begun:
        looked.at("the body's features", looked.features)
    if looked.passed:  # all that follows is made from the features
        looked.at("a mask of ones is no mask", looked.ones)
        looked.at("every mask has an effect", looked.effects)
        looked.at("the body's gradients", looked.body_gradients)
        if looked.has_state:
            looked.at("the gradient of the first state", looked.state_gradient)
        looked.at("what body_backward is not asked for", looked.unasked)
        if hasattr(model, "bodies"):
            looked.at("several passes at once", looked.together)
        if getattr(looked.batch, "targets", None) is not None:
            looked.at("the head's gradients", looked.head_gradients)
        for name in ("js", "kl"):
            looked.at(f"the gradients of compare, {name}", partial(looked.compare_gradients, name))
        looked.at("compare with a stopped base", looked.stopped)
        looked.at("compare with weights lam", looked.weighted)
        looked.at("compare with itself", looked.itself)
        if hasattr(model, "logits"):
            looked.at("the logits", looked.logits)
    if begun:
        looked.at("nothing was changed", looked.unchanged)
    return Report(type(model).__name__, tuple(looked.findings))


def _protocol(model: Any, batch: Any, params: Any) -> str:
    missing = [name for name in METHODS if not callable(getattr(model, name, None))]
    if not hasattr(model, "sites"):
        missing.insert(0, "sites")
    if params is None and not hasattr(model, "init"):
        missing.append("init (or give params)")
    if missing:
        raise _Wrong(f"it lacks {', '.join(missing)}")
    sites = tuple(model.sites)
    if not sites or not all(isinstance(site, Site) and site.H >= 1 for site in sites):
        raise _Wrong(f"sites is {sites!r}, expected records such as minadv.protocol.Site('layer0', H)")
    if len({site.name for site in sites}) < len(sites):
        raise _Wrong(f"sites has one name twice: {[site.name for site in sites]}")
    if not hasattr(batch, "__len__") or not hasattr(batch, "targets"):
        raise _Wrong(f"the batch is a {type(batch).__name__}, expected one with a len, its examples, and targets")
    more = [name for name in ("init", "logits") if not hasattr(model, name)]
    return f"sites {', '.join(site.name for site in sites)}" + (f"; fit needs {' and '.join(more)} too" if more else "")


class _Wrong(Exception):
    """What was found is not what was expected: the text of a finding."""


class _Looked:
    """The findings so far, and what they are made from."""

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng
        self.findings: list[Finding] = []
        self.batch: Any = None
        self.params: Any = None

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def at(self, what: str, look: Callable[[], Any]) -> None:
        """Add a finding: what a look returns, or, failed, what it raises."""
        try:
            self.findings.append(Finding(what, True, look() or ""))
        except _Wrong as wrong:
            self.findings.append(Finding(what, False, str(wrong)))
        except gradcheck.GradientError as error:
            bad = [" ".join(line.split()) for line in str(error).splitlines() if line.startswith("  FAIL")]
            self.findings.append(Finding(what, False, "; ".join(bad)))
        except Exception as error:
            self.findings.append(Finding(what, False, f"{type(error).__name__}: {error}"))

    def begin(self, batch: Any, params: Any) -> None:
        """The batch and the weights in float64, masks and noise."""
        self.batch = tree_map(_double, batch) if children(batch) is not None else batch
        example = next((leaf for _, leaf in leaves(self.batch) if hasattr(leaf, "dtype")), np.zeros(0))

        def draw() -> None:
            self.params = self.model.init(self.rng, dtype=np.float64)

        def noise() -> None:
            self.noise = self.model.noise(self.rng, self.batch)

        self.params = params
        if params is None:
            self.at("init", draw)
        if not self.passed:
            return
        self.params = tree_map(lambda a: same_place(_double(a), example), self.params)
        self.before = tree_map(lambda a: a.copy() if hasattr(a, "copy") else a, (self.params, self.batch))
        B, sites = len(self.batch), self.model.sites
        self.masks = {s.name: same_place(self.rng.uniform(0.5, 1.5, (B, s.H)), example) for s in sites}
        self.at("noise", noise)

    def run(self, masks: Any, params: Any = None, **more: Any) -> Any:
        params = self.params if params is None else params
        return self.model.body(params, self.batch, masks=masks, noise=self.noise, **more)

    def features(self) -> str:
        found = self.run({})
        if not isinstance(found, tuple) or len(found) != 3:
            raise _Wrong(f"body returned a {type(found).__name__}, expected features, last state and cache")
        self.f0: Array = found[0]
        if self.f0.ndim != 3 or self.f0.shape[1] != len(self.batch):
            raise _Wrong(f"they have shape {shape_text(self.f0.shape)}, expected (N, B, F) with B = {len(self.batch)}")
        if self.f0.dtype != np.float64:
            raise _Wrong(f"they have dtype {self.f0.dtype} for inputs and weights in float64")
        if not bool((self.run({})[0] == self.f0).all()):
            raise _Wrong("two calls with the same arguments return different numbers: draw random ones in noise")
        self.f1: Array = self.run(self.masks)[0]
        self.state = found[1]
        return f"(N, B, F) = {shape_text(self.f0.shape)}"

    @property
    def has_state(self) -> bool:
        """Whether the last state of a pass holds numbers that a gradient could go to."""
        return any(getattr(getattr(leaf, "dtype", None), "kind", "") == "f" for _, leaf in leaves(self.state))

    def ones(self) -> None:
        ones = {name: namespace(m).ones_like(m) for name, m in self.masks.items()}
        _expect_close("with a mask of ones at every site the features differ", self.run(ones)[0], self.f0)

    def effects(self) -> None:
        idle = [name for name, m in self.masks.items() if bool((self.run({name: m})[0] == self.f0).all())]
        if idle:
            hint = "does body use masks[name]? A recurrent mask has none on sequences of one step"
            raise _Wrong(f"the mask of {', '.join(idle)} changes no feature: {hint}")

    def body_gradients(self) -> str:
        names, inputs = tuple(self.masks), hasattr(self.model, "n_inputs") and hasattr(self.model, "valid")
        args = {"params": self.params, "masks": self.masks}
        if inputs:
            T, B = self.model.valid(self.batch).shape
            args["dx"] = same_place(0.1 * self.rng.standard_normal((T, B, self.model.n_inputs)), self.f0)

        def backward(args: Any, dfeatures: Array) -> dict[str, Any]:
            more = {"dx": args["dx"]} if inputs else {}
            _, _, cache = self.run(args["masks"], args["params"], **more)
            got = self.model.body_backward(args["params"], cache, dfeatures, inputs=inputs, masks=names)
            if not isinstance(got, ModelGrads):
                raise _Wrong(f"body_backward returned a {type(got).__name__}, expected minadv.protocol.ModelGrads")
            lacking = [name for name in names if name not in got.masks]
            if lacking:
                raise _Wrong(f"body_backward returned no gradient for the masks {', '.join(lacking)}")
            grads = {"params": tree_filled(got.params, args["params"]), "masks": {n: got.masks[n] for n in names}}
            return grads | ({"dx": got.inputs} if inputs else {})

        self._check(lambda params, masks, **more: self.run(masks, params, **more)[0], backward, args)
        return "weights, masks" + (", inputs" if inputs else "; without n_inputs and valid, AT and VAT cannot be used")

    def state_gradient(self) -> str:
        """The last state of one pass is the first of the next."""
        _, _, cache = self.run(self.masks, state=self.state)
        if self.model.body_backward(self.params, cache, self.f0).state is None:
            return "body_backward returns none"

        def backward(args: Any, dfeatures: Array) -> dict[str, Any]:
            _, _, cache = self.run(self.masks, state=args["state"])
            return {"state": self.model.body_backward(self.params, cache, dfeatures).state}

        self._check(lambda state: self.run(self.masks, state=state)[0], backward, {"state": self.state})
        return ""

    def unasked(self) -> None:
        _, _, cache = self.run({})
        some = next(iter(self.masks))
        got = self.model.body_backward(self.params, cache, self.f0, weights=False, masks=(some,))
        if got.params is not None or set(got.masks) != {some}:
            raise _Wrong(f"weights=False, masks=({some!r},) returned {got.params!r}, masks {sorted(got.masks)}")

    def together(self) -> None:
        passes = run_bodies(self.model, self.params, self.batch, masks=[{}, self.masks], noises=[self.noise] * 2)
        for one, alone in zip(passes, (self.f0, self.f1), strict=True):
            _expect_close("bodies returns other features than body", one.features, alone)

    def head_gradients(self) -> str:
        targets = self.batch.targets

        def backward(args: Any, dnll: Array) -> dict[str, Any]:
            found = self.model.head(args["params"], args["features"], targets)
            if not isinstance(found, Likelihood):
                raise _Wrong(f"head returned a {type(found).__name__}, expected minadv.protocol.Likelihood")
            return {"params": tree_filled(found.params, args["params"]), "features": found.dfeatures}

        def forward(params: Any, features: Array) -> Array:
            found = self.model.head(params, features, targets)
            total = found.nll if found.penalty is None else found.nll + found.penalty
            if total.shape != (len(self.batch),):
                raise _Wrong(f"nll has shape {shape_text(total.shape)}, expected (B,) = ({len(self.batch)},)")
            return total.sum(keepdims=True)  # type: ignore[no-any-return]

        self._check(forward, backward, {"params": self.params, "features": self.f1}, scale_by_cotangent=True)
        return "weights, features"

    def compare_gradients(self, name: str, lam: Array | None = None) -> str:
        distance = distances.by_name(name)

        def compared(params: Any, features0: Array, features1: Array) -> Comparison:
            found = self.model.compare(params, features0, features1, lam, distance)
            if not isinstance(found, Comparison):
                raise _Wrong(f"compare returned a {type(found).__name__}, expected minadv.protocol.Comparison")
            if found.d.shape != (len(self.batch),):
                raise _Wrong(f"d has shape {shape_text(found.d.shape)}, expected (B,) = ({len(self.batch)},)")
            return found

        def backward(args: Any, dd: Array) -> dict[str, Any]:
            found = compared(**args)
            grads = {"features0": found.dfeatures0, "features1": found.dfeatures1}
            return {"params": tree_filled(found.params, args["params"]), **grads}

        args = {"params": self.params, "features0": self.f0, "features1": self.f1}
        self._check(lambda **given: compared(**given).d.sum(keepdims=True), backward, args, scale_by_cotangent=True)
        return "weights, both features"

    def stopped(self) -> None:
        """No gradient to the base, and those of the other pass as they were.

        The distance js is symmetric: what goes to the weights through one pass alone, and through the other alone with
        the two exchanged, adds up to what goes to them through both.
        """
        js = distances.by_name("js")
        bare = self.model.compare(self.params, self.f0, self.f1, None, js, stop_base=True, weights=False)
        if bare.dfeatures0 is not None or bare.params is not None:
            raise _Wrong("stop_base=True, weights=False returned dfeatures0 or params, expected None for both")
        both = self.model.compare(self.params, self.f0, self.f1, None, js)
        one = self.model.compare(self.params, self.f0, self.f1, None, js, stop_base=True)
        other = self.model.compare(self.params, self.f1, self.f0, None, js, stop_base=True)
        for said, found in (("stop_base=True", one), ("stop_base=True, weights=False", bare)):
            _expect_close(f"{said} returns another d", found.d, both.d)
            _expect_close(f"{said} returns another dfeatures1", found.dfeatures1, both.dfeatures1)
        parts = [dict(leaves(tree_filled(a.params, self.params))) for a in (one, other, both)]
        for name, whole in parts[2].items():
            said = f"stop_base=True returns a gradient of {name} that is not that through the second pass alone"
            _expect_close(said, parts[0][name] + parts[1][name], whole)

    def weighted(self) -> None:
        r"""The distance is :math:`\sum_t \lambda_t D_t`: linear in lam, and a step of weight zero has no gradient."""
        a, b = (same_place(self.rng.uniform(0.5, 1.5, self.f0.shape[:2]), self.f0) for _ in range(2))
        a[0, 0] = 0
        js = distances.by_name("js")
        one, two, mixed = (self.model.compare(self.params, self.f0, self.f1, w, js) for w in (a, b, a + 2 * b))
        expected = "expected the sum over steps of lam (N, B) times the distance"
        _expect_close(f"d is not linear in lam: {expected}", mixed.d, one.d + 2 * two.d, floor=0.0)
        if bool(one.dfeatures1[0, 0].any()):
            raise _Wrong(f"a step that lam gives no weight has a gradient: {expected}")
        self.compare_gradients("js", a)

    def logits(self) -> str:
        found = self.model.logits(self.params, self.f0)
        shape = getattr(found, "shape", None)
        if shape is None or len(shape) != 3 or shape[:2] != self.f0.shape[:2]:
            said = f"a {type(found).__name__}" if shape is None else f"shape {shape_text(shape) if shape else '()'}"
            raise _Wrong(f"logits returned {said}, expected (N, B, C) with (N, B) = {shape_text(self.f0.shape[:2])}")
        return f"(N, B, C) = {shape_text(shape)}"

    def itself(self) -> None:
        d = self.model.compare(self.params, self.f0, self.f0, None, distances.by_name("js")).d
        if float(abs(d).max()) > 1e-12:
            raise _Wrong(f"the distance of a pass to itself is {float(abs(d).max()):.3g}, expected 0")

    def unchanged(self) -> None:
        now = dict(leaves((self.params, self.batch)))
        for name, then in leaves(self.before):
            if hasattr(then, "dtype") and not bool((now[name] == then).all()):
                part, _, leaf = name.partition(".")
                raise _Wrong(f"{'params' if part == '0' else 'the batch'} was changed in place: {leaf}")

    def _check(self, forward: Any, backward: Any, args: dict[str, Any], *, scale_by_cotangent: bool = False) -> None:
        """Raise GradientError unless finite differences agree; gradients of a sum are multiplied by its cotangent."""

        def scaled(given: Any, d: Any) -> Any:
            return tree_map(lambda g: d.reshape(-1)[0] * g, backward(given, d))

        way = scaled if scale_by_cotangent else backward
        gradcheck.check(forward, way, args, rng=self.rng, elementwise=16).raise_if_failed()


def _double(a: Any) -> Any:
    return a.astype(np.float64) if getattr(getattr(a, "dtype", None), "kind", "") == "f" else a


def _expect_close(said: str, a: Array, b: Array, *, floor: float = 1.0) -> None:
    if a.shape != b.shape or not float(abs(a - b).max()) <= 1e-9 * max(floor, float(abs(b).max())):
        raise _Wrong(said)
