"""Small classifiers to attack, and wrappers that watch or forbid their passes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minadv.base.trees import tree_map
from minadv.models import Batch, Classifier


def network(
    rng: np.random.Generator,
    put: Callable[[Any], Any],
    *,
    T: int = 4,
    B: int = 3,
    I: int = 2,
    H: int = 4,
    C: int = 3,
    valid: Any = None,
    size: float = 1.0,
    **options: Any,
) -> tuple[Classifier, Any, Batch]:
    """A classifier with weights of moderate size in float64, and a labelled batch for it."""
    model = Classifier(I, H, C, **options)
    params = tree_map(lambda a: size * rng.uniform(-1, 1, a.shape), model.init(rng, dtype=np.float64))
    batch = Batch(rng.standard_normal((T, B, I)), rng.integers(0, C, B), valid)
    return model, put(params), put(batch)


class Watched:
    """A model that remembers what each of its passes was given."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.forward: list[dict[str, Any]] = []
        self.backward: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.model, name)
        return {"bodies": self._bodies, "bodies_backward": self._bodies_backward}.get(name, found)

    def _bodies(self, params: Any, batch: Any, *, masks: Any, noises: Any, **given: Any) -> Any:
        self.forward += [{**given, "masks": m, "noise": noise} for m, noise in zip(masks, noises, strict=True)]
        return self.model.bodies(params, batch, masks=masks, noises=noises, **given)

    def _bodies_backward(self, params: Any, caches: Any, dfeatures: Any) -> Any:
        self.backward += [{}] * len(caches)
        return self.model.bodies_backward(params, caches, dfeatures)

    def body(self, params: Any, batch: Any, **given: Any) -> Any:
        self.forward.append(given)
        return self.model.body(params, batch, **given)

    def body_backward(self, params: Any, cache: Any, dfeatures: Any, **given: Any) -> Any:
        self.backward.append(given)
        return self.model.body_backward(params, cache, dfeatures, **given)


class Untouchable(Watched):
    """A model whose passes must not be run: errors come before work."""

    def body(self, params: Any, batch: Any, **given: Any) -> Any:
        raise AssertionError("a pass was run before the arguments were checked")

    def _bodies(self, *args: Any, **given: Any) -> Any:
        raise AssertionError("a pass was run before the arguments were checked")
