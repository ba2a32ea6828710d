r"""What a device computes by kernels of its own, function by function: provided through `minadv.base.kernels`.

Each kernel gives the numbers of the readable function that it stands for, up to rounding (masks to the bit);
``tests/fast/test_device.py`` holds every one of them to it. ``MINADV_COMPILED=0`` and ``MINADV_ENGINE=plain`` leave
them out. The engine of a model or a run does not: it chooses the passes alone.
"""

from __future__ import annotations

from minadv import distances, flip, influence, layers, masks
from minadv.base import philox
from minadv.base.kernels import provide, provider
from minadv.fast import choice


@provider
def kernels() -> None:
    """Provide every kernel; called once there are CuPy arrays."""
    if choice.without_compiling() or choice.wanted() == "plain":
        return
    from minadv.fast import device_distances, device_embedding, device_flip, device_masks, device_update

    provide(philox.keeps, device_masks.keeps)
    for name, distance in distances.DISTANCES.items():
        provide(distance, device_distances.distance(name))
    provide(layers.cross_entropy, device_distances.cross_entropy)
    provide(layers.embedding_backward, device_embedding.embedding_backward)
    provide(flip.flip, device_flip.flip)
    provide(masks.one_flip, device_flip.one_flip)
    provide(influence.agree, device_flip.agree)
    provide(influence.zero_maps, device_flip.zero_maps)
    provide("minadv.training.clip.global_norm", device_update.global_norm)
    provide("minadv.training.update.updated", device_update.updated)
