r"""The step in PyTorch: autograd on a hand-written masked cell, run eagerly, scripted, or compiled in blocks of steps.

The input's share of the pre-activations is one product before the loop, cut by ``unbind``: indexing ``x[t]`` under
autograd would fill a whole zero gradient for each t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional, TypeAlias

from experiments.bench.contenders.problem import LR, Exchange, Given, Outcome, Problem

if TYPE_CHECKING:  # so that types are the same where PyTorch is not installed
    torch: Any
    Tensor: TypeAlias = Any
else:
    import torch
    from torch import Tensor

# TorchScript reads annotations: Optional as typing writes it, and tensors in the signature of everything it compiles.


def run_cell(zx: Tensor, h: Tensor, c: Tensor, U: Tensor, m: Optional[Tensor]) -> tuple[Tensor, Tensor]:  # noqa: UP045
    """The last state from ``zx (T, B, 4H)``, the input's share of the pre-activations."""
    for z in zx.unbind(0):
        hhat = h if m is None else h * m
        i, f, g, o = torch.addmm(z, hhat, U).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h, c


def in_blocks(cell: Callable[..., Any], block: int) -> Callable[..., Any]:
    """The loop of a cell, called for ``block`` steps at a time."""

    def run(zx: Tensor, h: Tensor, c: Tensor, U: Tensor, m: Tensor | None) -> tuple[Tensor, Tensor]:
        for piece in zx.split(block):
            h, c = cell(piece, h, c, U, m)
        return h, c

    return run


def make_cell(how: str, T: int, block: int) -> Callable[..., Any]:
    if how == "eager":
        return run_cell
    if how == "scripted":
        scripted: Callable[..., Any] = torch.jit.script(run_cell)
        return scripted
    steps = max(n for n in range(1, min(block, T) + 1) if T % n == 0)  # equal blocks: one shape to compile
    return in_blocks(torch.compile(run_cell, dynamic=False), steps)


def js(z0: Tensor, z1: Tensor) -> Tensor:
    """The Jensen-Shannon divergence (B,), in the form that does not cancel."""
    log_p0, log_p1 = torch.log_softmax(z0, 1), torch.log_softmax(z1, 1)
    r = log_p0 - log_p1
    s0 = -torch.log1p(0.5 * torch.expm1(-r))
    s1 = -torch.log1p(0.5 * torch.expm1(r))
    return 0.5 * (log_p0.exp() * s0 + log_p1.exp() * s1).sum(1)


def flip(eps: Tensor, im: Tensor, budget: int) -> Tensor:
    """The strict flip: the walk along the sorted gains, reflected at the budget."""
    gain = (1 - 2 * eps) * im
    step = torch.where(eps == 1, 1, -1) * (gain > 0)
    order = torch.argsort(-gain, dim=1, stable=True)
    step = step.gather(1, order)
    walk = (eps == 0).sum(1, keepdim=True) + step.cumsum(1)
    excess = (walk.cummax(1).values - budget).clamp(min=0)
    before = torch.nn.functional.pad(excess[:, :-1], (1, 0))
    taken = torch.zeros_like(eps, dtype=torch.bool).scatter(1, order, (step != 0) & (excess == before))
    return torch.where(taken, 1 - eps, eps)


class PyTorch:
    """The contender; ``how`` is eager, scripted or compiled.

    ``flush`` sets numbers too small to matter to zero, in this whole process: as minadv and XLA do, and much faster.
    """

    def __init__(self, problem: Problem, *, how: str = "eager", block: int = 8, flush: bool = False) -> None:
        torch.set_flush_denormal(flush)  # before the first parallel region, whose threads inherit it
        self.problem = problem
        self.cell = make_cell(how, problem.size.T, block)
        self.weights = [torch.tensor(w).requires_grad_() for w in problem.weights]
        self.x = torch.tensor(problem.x).reshape(-1, problem.size.I)  # (TB, I)
        self.targets, self.start = torch.tensor(problem.targets), torch.tensor(problem.start)
        self.zero = torch.zeros_like(self.start)

    def inputs(self) -> Tensor:
        """The input's share of the pre-activations (T, B, 4H), once for all passes."""
        W, _, b, _, _ = self.weights
        return torch.addmm(b, self.x, W).reshape(self.problem.size.T, self.problem.B, -1)

    def logits(self, weights: list[Tensor], zx: Tensor, m: Tensor | None) -> Tensor:
        """One pass."""
        _, U, _, V, d = weights
        h, _ = self.cell(zx, self.zero, self.zero, U, m)
        return torch.addmm(d, h, V)

    def work(self, K: int, given: Given = None) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        """Loss, maps, flipped masks and gradients."""
        n = self.problem.n
        frozen = [w.detach() for w in self.weights]  # a probe's graph leads to its mask and nowhere else
        zx = self.inputs()
        z0 = self.logits(self.weights, zx, None)
        eps, maps, flipped = self.start, [], []
        for k, budget in enumerate(self.problem.size.budgets(K)):
            m = eps.clone().requires_grad_()
            distance = js(z0.detach(), self.logits(frozen, zx.detach(), m)).sum()
            (im,) = torch.autograd.grad(distance, m)  # Eq. 6
            maps.append(im)
            flipped.append(flip(eps, im, budget))
            eps = flipped[-1] if given is None else torch.tensor(given[k]).to(eps)
        z1 = self.logits(self.weights, zx, eps)
        loss = (torch.nn.functional.cross_entropy(z0, self.targets, reduction="sum") + js(z0, z1).sum()) / n
        return loss.detach(), maps, flipped, list(torch.autograd.grad(loss, self.weights))

    def outcome(self, K: int, given: Given = None) -> Outcome:
        loss, maps, flipped, grads = self.work(K, given)
        maps, flipped, grads = ([t.numpy() for t in several] for several in (maps, flipped, grads))
        used = flipped if given is None else given
        return Outcome(float(loss), tuple(maps), tuple(flipped), tuple(used), tuple(grads))

    def step(self, K: int, exchange: Exchange | None = None) -> None:
        grads = self.work(K)[-1]
        if exchange is not None:
            grads = [torch.from_numpy(g) for g in exchange([g.numpy() for g in grads])]
        with torch.no_grad():
            for w, g in zip(self.weights, grads, strict=True):
                w -= LR * g
