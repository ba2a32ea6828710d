r"""A model of one's own, held to the protocol in one call: what it lacks, its shapes, and every gradient.

::

    print(check_model(model, batch))     # a line for each finding
    assert check_model(model, batch)

Each part is run in float64 on the batch and compared with central differences (`minadv.gradcheck`): the gradients of
the body to weights, masks, inputs and first state, those of the head and of the comparison. A few examples of a
few steps will do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from minadv.backend import Array, namespace, same_place
from minadv.base.checks import expect_generator, shape_text
from minadv.base.findings import Looks, Report, Wrong, expect_close
from minadv.base.trees import leaves, tree_filled, tree_map
from minadv.headcheck import Head, check_gradients
from minadv.protocol import ModelGrads, Site, run_bodies

METHODS = ("noise", "body", "body_backward", "head", "compare")


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
        head = Head(model, looked.params, looked.batch, looked.f0, looked.f1, rng)
        if getattr(looked.batch, "targets", None) is not None:
            looked.at("the head's gradients", head.head_gradients)
        for name in ("js", "kl"):
            looked.at(f"the gradients of compare, {name}", partial(head.compare_gradients, name))
        looked.at("compare with a stopped base", head.stopped)
        looked.at("compare with weights lam", head.weighted)
        looked.at("compare with itself", head.itself)
        if hasattr(model, "logits"):
            looked.at("the logits", head.logits)
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
        raise Wrong(f"it lacks {', '.join(missing)}")
    sites = tuple(model.sites)
    if not sites or not all(isinstance(site, Site) and site.H > 0 for site in sites):
        raise Wrong(f"sites is {sites!r}, expected records such as minadv.protocol.Site('layer0', H)")
    if len({site.name for site in sites}) < len(sites):
        raise Wrong(f"sites has one name twice: {[site.name for site in sites]}")
    if not hasattr(batch, "__len__") or not hasattr(batch, "targets"):
        raise Wrong(f"the batch is a {type(batch).__name__}, expected one with a len, its examples, and targets")
    more = [name for name in ("init", "logits") if not hasattr(model, name)]
    return f"sites {', '.join(site.name for site in sites)}" + (f"; fit needs {' and '.join(more)} too" if more else "")


class _Looked(Looks):
    """The findings so far, and what they are made from."""

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        super().__init__()
        self.model, self.rng = model, rng
        self.batch: Any = None
        self.params: Any = None

    def begin(self, batch: Any, params: Any) -> None:
        """The batch and the weights in float64, masks and noise."""
        self.batch = tree_map(_double, batch)
        example = next((leaf for _, leaf in leaves(self.batch) if hasattr(leaf, "dtype")), np.zeros(()))

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
        self.masks = {s.name: same_place(self.rng.random((B, s.H)), example) for s in sites}
        self.at("noise", noise)

    def run(self, masks: Any, params: Any = None, **more: Any) -> Any:
        params = self.params if params is None else params
        return self.model.body(params, self.batch, masks=masks, noise=self.noise, **more)

    def features(self) -> str:
        found = self.run({})
        if not isinstance(found, tuple) or len(found) != 3:
            raise Wrong(f"body returned a {type(found).__name__}, expected features, last state and cache")
        self.f0: Array = found[0]
        if self.f0.ndim != 3 or self.f0.shape[1] != len(self.batch):
            raise Wrong(f"they have shape {shape_text(self.f0.shape)}, expected (N, B, F) with B = {len(self.batch)}")
        if self.f0.dtype != np.float64:
            raise Wrong(f"they have dtype {self.f0.dtype} for inputs and weights in float64")
        if not bool((self.run({})[0] == self.f0).all()):
            raise Wrong("two calls with the same arguments return different numbers: draw random ones in noise")
        self.f1: Array = self.run(self.masks)[0]
        self.state = found[1]
        return f"(N, B, F) = {shape_text(self.f0.shape)}"

    @property
    def has_state(self) -> bool:
        """Whether the last state of a pass holds numbers that a gradient could go to."""
        return any(getattr(getattr(leaf, "dtype", None), "kind", "") == "f" for _, leaf in leaves(self.state))

    def ones(self) -> None:
        ones = {name: namespace(m).ones_like(m) for name, m in self.masks.items()}
        expect_close("with a mask of ones at every site the features differ", self.run(ones)[0], self.f0)

    def effects(self) -> None:
        idle = [name for name, m in self.masks.items() if bool((self.run({name: m})[0] == self.f0).all())]
        if idle:
            hint = "does body use masks[name]? A recurrent mask has none on sequences of one step"
            raise Wrong(f"the mask of {', '.join(idle)} changes no feature: {hint}")

    def body_gradients(self) -> str:
        names, inputs = tuple(self.masks), hasattr(self.model, "n_inputs") and hasattr(self.model, "valid")
        args = {"params": self.params, "masks": self.masks}
        if inputs:
            T, B = self.model.valid(self.batch).shape
            args["dx"] = same_place(self.rng.standard_normal((T, B, self.model.n_inputs)), self.f0)

        def backward(args: Any, dfeatures: Array) -> dict[str, Any]:
            more = {"dx": args["dx"]} if inputs else {}
            _, _, cache = self.run(args["masks"], args["params"], **more)
            got = self.model.body_backward(args["params"], cache, dfeatures, inputs=inputs, masks=names)
            if not isinstance(got, ModelGrads):
                raise Wrong(f"body_backward returned a {type(got).__name__}, expected minadv.protocol.ModelGrads")
            lacking = [name for name in names if name not in got.masks]
            if lacking:
                raise Wrong(f"body_backward returned no gradient for the masks {', '.join(lacking)}")
            grads = {"params": tree_filled(got.params, args["params"]), "masks": {n: got.masks[n] for n in names}}
            return grads | ({"dx": got.inputs} if inputs else {})

        check_gradients(self.rng, lambda params, masks, **more: self.run(masks, params, **more)[0], backward, args)
        return "weights, masks" + (", inputs" if inputs else "; without n_inputs and valid, AT and VAT cannot be used")

    def state_gradient(self) -> str:
        """The last state of one pass is the first of the next."""
        _, _, cache = self.run(self.masks, state=self.state)
        if self.model.body_backward(self.params, cache, self.f0).state is None:
            return "body_backward returns none"

        def backward(args: Any, dfeatures: Array) -> dict[str, Any]:
            _, _, cache = self.run(self.masks, state=args["state"])
            return {"state": self.model.body_backward(self.params, cache, dfeatures).state}

        check_gradients(self.rng, lambda state: self.run(self.masks, state=state)[0], backward, {"state": self.state})
        return ""

    def unasked(self) -> None:
        _, _, cache = self.run({})
        some = next(iter(self.masks))
        got = self.model.body_backward(self.params, cache, self.f0, weights=False, masks=(some,))
        if got.params is not None or set(got.masks) != {some}:
            raise Wrong(f"weights=False, masks=({some!r},) returned {got.params!r}, masks {sorted(got.masks)}")

    def together(self) -> None:
        passes = run_bodies(self.model, self.params, self.batch, masks=[{}, self.masks], noises=[self.noise] * 2)
        for one, alone in zip(passes, (self.f0, self.f1), strict=True):
            expect_close("bodies returns other features than body", one.features, alone)

    def unchanged(self) -> None:
        now = dict(leaves((self.params, self.batch)))
        for name, then in leaves(self.before):
            if hasattr(then, "dtype") and not bool((now[name] == then).all()):
                part, _, leaf = name.partition(".")
                raise Wrong(f"{'params' if part == '0' else 'the batch'} was changed in place: {leaf}")


def _double(a: Any) -> Any:
    return a.astype(np.float64) if getattr(getattr(a, "dtype", None), "kind", "") == "f" else a
