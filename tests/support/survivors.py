"""Mutants that no test notices, and why none should: what `tests.support.mutation` accepts.

An entry names a file of minadv/, the function, the line as it is and as the mutant has it; entries of one reason stand
under it. Those of training/ stand in `tests.support.survivors_training`. `tests/test_mutation.py` checks that each is
still a mutant of a line that exists.
"""

from dataclasses import dataclass

from tests.support.survivors_training import TRAINING


@dataclass(frozen=True)
class Survivor:
    """In ``where`` of ``file`` the line ``old`` may become ``new``, because of ``why``."""

    file: str
    where: str
    old: str
    new: str
    why: str


_JS_R = (
    "r = xp.subtract(log_p0, log_p1, out=log_p0)  # in place, as all below: for a vocabulary, memory is the bottleneck"
)
_LARGER = "larger = _log1p(xp.tanh(larger, out=larger))  # exact to rounding near r = 0, for two nearly equal networks"
_KL_NEAR = "near = xp.where(xp.abs(r) < 1, r, 0)"
_KL_TERMS = "terms = xp.where(xp.abs(r) < 1, p0 * (near + xp.expm1(-near)), p0 * r + gap)"
_SKL_GAP = "gap = xp.tanh(xp.multiply(r, 0.5, out=log_p1), out=log_p1)"
_GAP = "gap: Array = xp.where(near, p * xp.expm1(-xp.where(near, r, 0)), q - p)"
_AGREE = "same = (d <= rounding**2) & (apart <= rounding * size)"
_SAME = "same, d = agree(self.base.features, features, found.d)"
_DOUBLE = "g = cell.backward(params, cache, only_t, weights=False).hhat  # g[u] = d(lam_t D_t) / d hhat_u"
_RUNNING = "a = xp.concatenate([a[..., :reach], op(a[..., reach:], a[..., :-reach])], axis=-1)"
_STARTS = "starts = xp.nonzero(xp.concatenate([xp.ones(1, dtype=bool), ordered[1:] != ordered[:-1]]))[0]"
_SUMS = "dE[ordered[starts]] = xp.add.reduceat(dy.reshape(-1, E.shape[1])[order], starts, axis=0)"
_SIDES = "sides = [objective.select(first.im, sign) for sign in (1, -1)]"
_ONE = "model.body_backward(params, cache, d).params"
_BACK = f"total = tree_add(total, {_ONE})"
_SURE = "return surprise(logits0, logits1)"
_WHOLE = "total = 1 if lam is None else xp.maximum(lam.sum(axis=0, dtype=np.float64), tiny)"
_WIDTH = "width = max((len(name) for name in (*(row.name for row in self.rows), *self.unchecked)), default=0)"
_WORST = "worst = int(np.argmax(difference)) if difference.size else 0"
_MOVED, _FIXED = "leaves(to_host(forward(**changed)))", "leaves(to_host(cotangent))"
_PAIRS = f"pairs = zip({_MOVED}, {_FIXED}, strict=True)"
_UNIT = "unit = direction / xp.where(peak > 0, peak, 1)  # entries of at most 1, so that no square under- or overflows"
_WEIGHTS = "w = p**dropped * (1 - p) ** (eps.shape[1] - dropped)"
_ROW = "np.broadcast_to(row, logits.shape)"
_FD = f'w[k] * np.einsum("l,lb->b", w, d({_ROW}, logits)) for k, row in enumerate(logits)'
_PROBABILITIES = "if not np.isclose(w.sum(), 1) or (w < 0).any():"
_DEVICE = 'raise TypeError("the bounds are computed on the host: move the logits there with minadv.to_host")'
_HEAD = "tree_map(lambda g: factor * g, head)"
_HEADS = f"self._grads = tree_add(self._grads, {_HEAD})"
_TOTAL = "total = tree_add(self._grads, back)"
_PARTS = "grads=tree_add(total.grads, term.grads),"
_MAP = "dm = influence_map(h[:-1], dhhat)  # Eq. 6"

PAPER: dict[str, list[tuple[str, str, str, str]]] = {
    "an array of its own in the place of a buffer: the same numbers in more memory": [
        ("distances.py", "js", _JS_R, _JS_R.replace(", out=log_p0", "")),
        ("distances.py", "js", "larger = xp.abs(r, out=log_p1)", "larger = xp.abs(r)"),
        ("distances.py", "js", _LARGER, _LARGER.replace(", out=larger", "")),
        ("distances.py", "js", "terms0 = xp.minimum(r, 0, out=r)", "terms0 = xp.minimum(r, 0)"),
        ("distances.py", "skl", "r = xp.subtract(log_p0, log_p1, out=log_p0)", "r = xp.subtract(log_p0, log_p1)"),
        ("distances.py", "skl", _SKL_GAP, _SKL_GAP.replace("0.5, out=log_p1", "0.5")),
        ("distances.py", "skl", _SKL_GAP, _SKL_GAP.replace("), out=log_p1)", "))")),
        ("layers.py", "embedding_backward", _STARTS, _STARTS.replace("(1, dtype=bool)", "(1)")),
    ],
    "what the function does unless it is told otherwise, written out for the reader": [
        ("layers.py", "embedding_backward", _SUMS, _SUMS.replace(", axis=0", "")),
    ],
    "the two sides of a product or another commutative operation": [
        ("distances.py", "skl", _SKL_GAP, _SKL_GAP.replace("r, 0.5", "0.5, r")),
        (
            "flip.py",
            "_running",
            _RUNNING,
            _RUNNING.replace("a[..., reach:], a[..., :-reach]", "a[..., :-reach], a[..., reach:]"),
        ),
        ("gradcheck.py", "check.loss", _PAIRS, _PAIRS.replace(f"{_MOVED}, {_FIXED}", f"{_FIXED}, {_MOVED}")),
        ("bounds.py", "chain", _PROBABILITIES, _PROBABILITIES.replace("w.sum(), 1", "1, w.sum()")),
        ("protocol.py", "run_bodies_backward", _BACK, _BACK.replace(f"total, {_ONE}", f"{_ONE}, total")),
        ("regularizers.py", "Sum.term", _PARTS, "grads=tree_add(term.grads, total.grads),"),
        ("terms.py", "Tally.add", _HEADS, _HEADS.replace(f"self._grads, {_HEAD}", f"{_HEAD}, self._grads")),
        ("terms.py", "Tally.grads", _TOTAL, _TOTAL.replace("self._grads, back", "back, self._grads")),
        ("rnn.py", "backward", _MAP, _MAP.replace("h[:-1], dhhat", "dhhat, h[:-1]")),
        ("lstm.py", "backward", _MAP, _MAP.replace("h[:-1], dhhat", "dhhat, h[:-1]")),
        ("gru.py", "backward", _MAP, _MAP.replace("h[:-1], dhhat", "dhhat, h[:-1]")),
    ],
    "two forms of one number that agree to rounding on either side of the place where they change": [
        ("distances.py", "kl", _KL_NEAR, _KL_NEAR.replace("< 1", "<= 1")),
        ("distances.py", "kl", _KL_NEAR, _KL_NEAR.replace("< 1", "< 2")),
        ("distances.py", "kl", _KL_TERMS, _KL_TERMS.replace("< 1", "<= 1")),
        ("distances.py", "kl", _KL_TERMS, _KL_TERMS.replace("< 1", "< 0")),
        ("distances.py", "_gap", "near = xp.abs(r) < 1", "near = xp.abs(r) <= 1"),
        ("distances.py", "_gap", "near = xp.abs(r) < 1", "near = xp.abs(r) < 0"),
        ("distances.py", "_gap", "near = xp.abs(r) < 1", "near = xp.abs(r) < 2"),
    ],
    "the value of a branch that is not taken": [
        ("distances.py", "kl", _KL_NEAR, _KL_NEAR.replace("r, 0)", "r, 1)")),
        ("distances.py", "_gap", _GAP, _GAP.replace("r, 0)", "r, 1)")),
        (
            "bounds.py",
            "bias_js",
            "y_log_y = y * np.log(np.where(y > 0, y, 1))",
            "y_log_y = y * np.log(np.where(y > 0, y, 2))",
        ),
    ],
    "x is what rounding has lost of a sum from 1 to 2: dividing it by that sum changes the last digit but one": [
        ("distances.py", "_log1p", "x /= u", "pass"),
        ("distances.py", "_log1p", "x /= u", "x *= u"),
    ],
    "a number from a continuous distribution is never exactly the threshold": [
        (
            "masks.py",
            "bernoulli",
            "return same_place((uniform >= p).astype(like.dtype), like)",
            "return same_place((uniform > p).astype(like.dtype), like)",
        ),
    ],
    "a guard against rounding: any small number does": [
        (
            "masks.py",
            "budget",
            "flips = int(np.floor(delta * n_hidden + 1e-9))",
            "flips = int(np.floor(delta * n_hidden + 2e-09))",
        ),
        ("influence.py", "agree", _AGREE, _AGREE.replace("d <=", "d <")),
        (
            "objective.py",
            "Objective._compare",
            _SAME,
            _SAME.replace("self.base.features, features", "features, self.base.features"),
        ),
    ],
    "a row that keeps nothing has no scale of its own: its m is zero, and its gradient a convention": [
        (
            "masks.py",
            "_kept",
            "return namespace(S).where(S > 0, S, 1)  # type: ignore[no-any-return]",
            "return namespace(S).where(S > 0, S, 2)  # type: ignore[no-any-return]",
        ),
    ],
    "a candidate of influence zero never passes the strict threshold": [
        ("flip.py", "_authors", "candidate = (eps == 1) & (im <= 0)", "candidate = (eps == 1) & (im < 0)"),
        (
            "flip.py",
            "_authors",
            "candidate = candidate | ((eps == 0) & (im > 0))",
            "candidate = candidate | ((eps == 0) & (im >= 0))",
        ),
    ],
    "one more doubling joins nothing: the slices are empty": [
        ("flip.py", "_running", "while reach < a.shape[-1]:", "while reach <= a.shape[-1]:"),
    ],
    "only the shape is read": [
        (
            "influence.py",
            "influence_map_double_sum",
            "dm: Array = xp.zeros_like(h[0])",
            "dm: Array = xp.zeros_like(h[1])",
        ),
    ],
    "the strict rule reads the signs of a map and the order of its gains, which no factor changes": [
        (
            "objective.py",
            "Objective.select",
            "def select(self, im: Masks, sign: int = 1) -> Masks:",
            "def select(self, im: Masks, sign: int = 2) -> Masks:",
        ),
        ("relax.py", "margin_map", "for side in (-1, 1):", "for side in (-2, 1):"),
        ("relax.py", "margin_map", "for side in (-1, 1):", "for side in (-1, 2):"),
        ("searches.py", "Reselect.run", _SIDES, _SIDES.replace("(1, -1)", "(2, -1)")),
        ("searches.py", "Reselect.run", _SIDES, _SIDES.replace("(1, -1)", "(1, -2)")),
    ],
    "a default in the text of the protocol, which no call reaches: each model has its own": [
        ("protocol.py", "Model.body_backward", "weights: bool = True,", "weights: bool = False,"),
        ("protocol.py", "Model.body_backward", "inputs: bool = False,", "inputs: bool = True,"),
        ("protocol.py", "Model.compare", "stop_base: bool = False,", "stop_base: bool = True,"),
        ("protocol.py", "Model.compare", "weights: bool = True,", "weights: bool = False,"),
    ],
    "a sum in single precision in the place of double: its last digit": [
        ("protocol.py", "margin", _WHOLE, _WHOLE.replace(", dtype=np.float64", "")),
    ],
    "of nothing: a width without names, a place without entries": [
        ("gradcheck.py", "Report.__str__", _WIDTH, _WIDTH.replace("default=0", "default=1")),
        ("gradcheck.py", "_row", _WORST, _WORST.replace("else 0", "else 1")),
    ],
    "zero divided by anything is zero": [
        ("perturbations.py", "to_norm", _UNIT, _UNIT.replace("peak, 1)", "peak, 2)")),
    ],
    "a factor that all weights share: they are divided by their sum": [
        ("bounds.py", "bernoulli_weights", _WEIGHTS, _WEIGHTS.replace("shape[1]", "shape[0]")),
    ],
    "a sum over all pairs, in both orders": [
        ("bounds.py", "chain", _FD, _FD.replace(f"{_ROW}, logits))", f"logits, {_ROW}))")),
    ],
    "both predictions are one and the same: the pass is compared with itself": [
        ("protocol.py", "margin.distance", _SURE, _SURE.replace("logits0, logits1", "logits1, logits0")),
    ],
    "only whether anything was appended is read": [
        ("protocol.py", "margin.distance", "asked.append(True)", "asked.append(False)"),
    ],
    "asks for gradients that nobody reads: the same result for more work": [
        ("influence.py", "influence_map_double_sum", _DOUBLE, _DOUBLE.replace(", weights=False", "")),
        ("influence.py", "influence_map_double_sum", _DOUBLE, _DOUBLE.replace("False", "True")),
    ],
    "runs only where there is a GPU: the suite on CuPy and a stand-in hold what can be held without one": [
        ("bounds.py", "chain", _DEVICE, "pass"),
    ],
}
SURVIVORS = [Survivor(*row, why) for table in (PAPER, TRAINING) for why, rows in table.items() for row in rows]
_KNOWN = {(s.file, s.where, s.old, s.new) for s in SURVIVORS}


def explained(file: str, where: str, old: str, new: str) -> bool:
    """Whether this mutant may survive."""
    return (file, where, old, new) in _KNOWN
