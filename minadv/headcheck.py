r"""The second half of `minadv.modelcheck`: what a model makes of features. Its head, its comparison, its logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minadv import distances, gradcheck
from minadv.backend import Array, same_place
from minadv.base.checks import shape_text
from minadv.base.findings import Wrong, expect_close
from minadv.base.trees import leaves, tree_filled, tree_map
from minadv.protocol import Comparison, Likelihood


@dataclass(frozen=True)
class Head:
    """A model behind its body, with the features of a base pass and of another; its methods are looks."""

    model: Any
    params: Any
    batch: Any
    f0: Array  # (N, B, F)
    f1: Array
    rng: np.random.Generator

    def head_gradients(self) -> str:
        targets = self.batch.targets

        def backward(args: Any, dnll: Array) -> dict[str, Any]:
            found = self.model.head(args["params"], args["features"], targets)
            return {"params": tree_filled(found.params, args["params"]), "features": found.dfeatures}

        def forward(params: Any, features: Array) -> Array:
            found = self.model.head(params, features, targets)
            if not isinstance(found, Likelihood):
                raise Wrong(f"head returned a {type(found).__name__}, expected minadv.protocol.Likelihood")
            total = found.nll if found.penalty is None else found.nll + found.penalty
            if total.shape != (len(self.batch),):
                raise Wrong(f"nll has shape {shape_text(total.shape)}, expected (B,) = ({len(self.batch)},)")
            return total.sum()  # type: ignore[no-any-return]

        args = {"params": self.params, "features": self.f1}
        check_gradients(self.rng, forward, backward, args, of_sum=True)
        return "weights, features"

    def compare_gradients(self, name: str, lam: Array | None = None) -> str:
        distance = distances.by_name(name)

        def compared(params: Any, features0: Array, features1: Array) -> Comparison:
            found = self.model.compare(params, features0, features1, lam, distance)
            if not isinstance(found, Comparison):
                raise Wrong(f"compare returned a {type(found).__name__}, expected minadv.protocol.Comparison")
            if found.d.shape != (len(self.batch),):
                raise Wrong(f"d has shape {shape_text(found.d.shape)}, expected (B,) = ({len(self.batch)},)")
            return found

        def backward(args: Any, dd: Array) -> dict[str, Any]:
            found = compared(**args)
            grads = {"features0": found.dfeatures0, "features1": found.dfeatures1}
            return {"params": tree_filled(found.params, args["params"]), **grads}

        args = {"params": self.params, "features0": self.f0, "features1": self.f1}
        check_gradients(self.rng, lambda **args: compared(**args).d.sum(), backward, args, of_sum=True)
        return "weights, both features"

    def stopped(self) -> None:
        """No gradient to the base, and those of the other pass as they were.

        The distance js is symmetric: what goes to the weights through one pass alone, and through the other alone with
        the two exchanged, adds up to what goes to them through both.
        """
        js = distances.by_name("js")
        bare = self.model.compare(self.params, self.f0, self.f1, None, js, stop_base=True, weights=False)
        if bare.dfeatures0 is not None or bare.params is not None:
            raise Wrong("stop_base=True, weights=False returned dfeatures0 or params, expected None for both")
        both = self.model.compare(self.params, self.f0, self.f1, None, js)
        one = self.model.compare(self.params, self.f0, self.f1, None, js, stop_base=True)
        other = self.model.compare(self.params, self.f1, self.f0, None, js, stop_base=True)
        for said, found in (("stop_base=True", one), ("stop_base=True, weights=False", bare)):
            expect_close(f"{said} returns another d", found.d, both.d)
            expect_close(f"{said} returns another dfeatures1", found.dfeatures1, both.dfeatures1)
        parts = [dict(leaves(tree_filled(a.params, self.params))) for a in (one, other, both)]
        for name, whole in parts[2].items():
            said = f"stop_base=True returns a gradient of {name} that is not that through the second pass alone"
            expect_close(said, parts[0][name] + parts[1][name], whole)

    def weighted(self) -> None:
        r"""The distance is :math:`\sum_t \lambda_t D_t`: linear in lam, and a step of weight zero has no gradient."""
        a, b = (same_place(self.rng.random(self.f0.shape[:2]), self.f0) for _ in range(2))
        a[0, 0] = 0
        js = distances.by_name("js")
        one, two, mixed = (self.model.compare(self.params, self.f0, self.f1, w, js) for w in (a, b, a + 2 * b))
        expected = "expected the sum over steps of lam (N, B) times the distance"
        expect_close(f"d is not linear in lam: {expected}", mixed.d, one.d + 2 * two.d, floor=0.0)
        if bool(one.dfeatures1[0, 0].any()):
            raise Wrong(f"a step that lam gives no weight has a gradient: {expected}")
        self.compare_gradients("js", a)

    def logits(self) -> str:
        found = self.model.logits(self.params, self.f0)
        shape = getattr(found, "shape", None)
        if shape is None or len(shape) != 3 or shape[:2] != self.f0.shape[:2]:
            said = f"a {type(found).__name__}" if shape is None else f"shape {shape_text(shape)}"
            raise Wrong(f"logits returned {said}, expected (N, B, C) with (N, B) = {shape_text(self.f0.shape[:2])}")
        return f"(N, B, C) = {shape_text(shape)}"

    def itself(self) -> None:
        d = self.model.compare(self.params, self.f0, self.f0, None, distances.by_name("js")).d
        expect_close(f"the distance of a pass to itself is {float(abs(d).max()):.3g}, expected 0", d, 0 * d)


def check_gradients(
    rng: np.random.Generator, forward: Any, backward: Any, args: dict[str, Any], *, of_sum: bool = False
) -> None:
    """Raise `Wrong` unless finite differences agree; gradients ``of_sum`` are multiplied by its cotangent here."""

    def scaled(given: Any, d: Any) -> Any:
        return tree_map(lambda g: d.reshape(-1)[0] * g, backward(given, d))

    report = gradcheck.check(forward, scaled if of_sum else backward, args, rng=rng, elementwise=16)
    if not report:
        bad = (" ".join(line.split()) for line in str(report).splitlines() if line.startswith("  FAIL"))
        raise Wrong("; ".join(bad))
