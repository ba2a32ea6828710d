r"""A language model's training step in PyTorch, as one would write it there: autograd, and all logits at once.

The same work as minadv's step: embedding and tied softmax, LSTM layers, dropout of words, inputs, layers' outputs and
recurrent weights, clipped SGD; for AdD a probe pass, the influence map and the flip, and the adversarial pass besides.
A pass without a recurrent mask may run PyTorch's own fused LSTM; one with a mask needs a cell written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # so that types are the same where PyTorch is not installed
    torch: Any
    Tensor: TypeAlias = Any
else:
    import torch
    from torch import Tensor

CLIP = 0.25


@dataclass(frozen=True)
class Masks:
    """The noise of a pass, scaled by 1/(1-p): what minadv's `language_noise.Noise` holds."""

    words: Tensor  # (V, 1)
    inputs: Tensor  # (B, D)
    outputs: list[Tensor]  # (B, H) a layer
    U: list[Tensor]  # (H, 4H) a layer


@dataclass(frozen=True)
class Net:
    """The weights, as minadv has them: W (I, 4H), U (H, 4H), b (4H,), gates in the order i, f, g, o."""

    E: Tensor  # (V, D)
    cells: list[tuple[Tensor, Tensor, Tensor]]
    b: Tensor  # (V,)

    @property
    def leaves(self) -> list[Tensor]:
        return [self.E, *(w for cell in self.cells for w in cell), self.b]

    def frozen(self) -> Net:
        """The same weights without gradients."""
        return Net(self.E.detach(), [tuple(w.detach() for w in cell) for cell in self.cells], self.b.detach())


def draw(net: Net, rates: Sequence[float], B: int) -> Masks:
    """New noise; rates of words, inputs, between layers, outputs, recurrent weights."""

    def keep(p: float, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=net.E.dtype).bernoulli_(1 - p) / (1 - p)

    words, inputs, between, last, U = rates
    units = [cell[1].shape[0] for cell in net.cells]
    outputs = [keep(p, B, H) for p, H in zip([between] * (len(units) - 1) + [last], units, strict=True)]
    return Masks(
        keep(words, net.E.shape[0], 1), keep(inputs, B, net.E.shape[1]), outputs, [keep(U, H, 4 * H) for H in units]
    )


def other_words(net: Net, noise: Masks, p: float) -> Masks:
    """The same noise, but for the words, which are drawn anew with the rate p."""
    words = torch.empty(net.E.shape[0], 1, dtype=net.E.dtype).bernoulli_(1 - p) / (1 - p)
    return Masks(words, noise.inputs, noise.outputs, noise.U)


def run_cell(zx: Tensor, h: Tensor, c: Tensor, U: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The states (T, B, H) and the last one, from ``zx (T, B, 4H)``, with a mask on the recurrent connection."""
    seen = []
    for z in zx.unbind(0):
        i, f, g, o = torch.addmm(z, h * m, U).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        seen.append(h)
    return torch.stack(seen), h, c


def run_fused(x: Tensor, h: Tensor, c: Tensor, cell: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The states (T, B, H) and the last one, without a mask, by PyTorch's own LSTM."""
    W, U, b = cell
    flat = [W.t(), U.t(), b, torch.zeros_like(b)]
    out, last_h, last_c = torch._VF.lstm(x, (h[None], c[None]), flat, True, 1, 0.0, True, False, False)
    return out, last_h[0], last_c[0]


def run(
    net: Net, tokens: Tensor, noise: Masks, state: list[tuple[Tensor, Tensor]], m: list[Tensor] | None, fused: bool
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """One pass: all logits (T, B, V), and the last states."""
    x = (net.E * noise.words)[tokens] * noise.inputs
    last = []
    for n, (W, U, b) in enumerate(net.cells):
        U = U * noise.U[n]
        if m is None and fused:
            out, h, c = run_fused(x, *state[n], (W, U, b))
        else:
            mask = torch.ones_like(state[n][0]) if m is None else m[n]
            zx = torch.addmm(b, x.flatten(0, 1), W).unflatten(0, x.shape[:2])
            out, h, c = run_cell(zx, *state[n], U, mask)
        last.append((h.detach(), c.detach()))
        x = out * noise.outputs[n]
    logits = torch.addmm(net.b, x.flatten(0, 1), net.E.t()).unflatten(0, x.shape[:2])
    return logits, last


def js(z0: Tensor, z1: Tensor) -> Tensor:
    """The Jensen-Shannon divergence (T, B), in the form that does not cancel."""
    log_p0, log_p1 = torch.log_softmax(z0, -1), torch.log_softmax(z1, -1)
    r = log_p0 - log_p1
    s0, s1 = (-torch.log1p(0.5 * torch.expm1(d)) for d in (-r, r))
    return 0.5 * (log_p0.exp() * s0 + log_p1.exp() * s1).sum(-1)


def flip(im: Tensor, budget: int) -> Tensor:
    """From the full mask: drop the units of largest gain, those of positive gain only."""
    gain, units = torch.topk(-im, budget, dim=1)
    return torch.ones_like(im).scatter(1, units, (gain <= 0).to(im.dtype))


def gradients(
    net: Net,
    tokens: Tensor,
    targets: Tensor,
    noise: Masks,
    state: list[tuple[Tensor, Tensor]],
    *,
    second: Masks | None = None,
    budgets: Sequence[int] = (),
    fused: bool = True,
) -> tuple[list[Tensor], Tensor, list[tuple[Tensor, Tensor]]]:
    """Gradients, loss and last states of a step; with budgets the loss has AdD (K = 1), under the noise ``second``."""
    z0, last = run(net, tokens, noise, state, None, fused)
    loss = torch.nn.functional.cross_entropy(z0.flatten(0, 1), targets.flatten())
    if second is not None:
        m = [torch.ones_like(h).requires_grad_() for h, _ in state]
        probe, _ = run(net.frozen(), tokens, second, state, m, fused)
        maps = torch.autograd.grad(js(z0.detach(), probe).mean(0).sum(), m)  # Eq. 6
        eps = [flip(im, b) for im, b in zip(maps, budgets, strict=True)]
        z1, _ = run(net, tokens, second, state, eps, fused)
        loss = loss + js(z0, z1).mean()
    return list(torch.autograd.grad(loss, net.leaves)), loss.detach(), last


def update(
    net: Net, grads: Sequence[Tensor], lr: float, decay: float = 0.0, average: Sequence[Tensor] | None = None
) -> None:
    """Clipped SGD with weight decay, in place; ``average`` becomes the mean of itself and the new weights."""
    norm = torch.sqrt(sum((g * g).sum() for g in grads))
    scale = lr * min(1.0, CLIP / float(norm))
    with torch.no_grad():
        for n, (w, g) in enumerate(zip(net.leaves, grads, strict=True)):
            w.mul_(1 - lr * decay).sub_(g, alpha=scale)
            if average is not None:
                average[n].lerp_(w, 0.5)
