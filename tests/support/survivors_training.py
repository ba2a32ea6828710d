"""Mutants of the training core that no test notices, and why none should: a part of `tests.support.survivors`."""

_DECAYED = "return tree_map(lambda g, p: g + weight_decay * p, grads, params) if weight_decay else grads"
_STEP = "def step(self, params: Tree, grads: Tree, state: Any, *, lr_scale: float = 1.0) -> tuple[Tree, Any]:"
_CHOOSE = "def choose_workers(task: Task, asked: int | None, ranks: int = 1) -> int:"
_OLDER = "older = [p for step, p in _found(path.parent) if match and step < int(match[1])]"
_UPDATED = "params, optimizer = updated(*given, step=state.step, loss=nll + value, rate=rate)"
_POSTFIX = 'self._bar.set_postfix_str(", ".join(f"{name} {text}" for name, text in self._shown.items()), refresh=False)'
_WATCHED = 'given = {"weight": 1.0, "part": Part(0, count, STRONG.group)}  # the same examples for both searches'
_PLACE = 'return tree_map(lambda a, b: same_place(a, b) if hasattr(a, "dtype") else a, tree, like)'
_CAME = "while not (came := bool(request.Test())) and time.monotonic() < last:"
_U = 'heaviest = max((leaf.nbytes for name, leaf in leaves(params) if name.rpartition(".")[2] == "U"), default=0)'
_END = "self.process.wait(timeout=5)"

TRAINING: dict[str, list[tuple[str, str, str, str]]] = {
    "no ranks, like one: this process shares its batches with its own workers": [
        ("training/parallel/choose.py", "choose_workers", _CHOOSE, _CHOOSE.replace("= 1", "= 0")),
    ],
    "the size of the largest weight of a network that has none": [
        (
            "training/divergence.py",
            "Losses.said",
            'size, name = max(weights, default=(0.0, ""))',
            'size, name = max(weights, default=(1.0, ""))',
        ),
    ],
    "the step of a loss that is not there": [
        (
            "training/divergence.py",
            "Losses.said",
            "step, loss = self.last or (0, None)",
            "step, loss = self.last or (1, None)",
        ),
    ],
    "looks at the damaged one once more, which is not sound": [
        ("training/runs/checkpoints.py", "load", _OLDER, _OLDER.replace("<", "<=")),
    ],
    "of the loss only whether it is finite is asked: a regularizer that is not makes it so with either sign": [
        ("training/loop.py", "advance", _UPDATED, _UPDATED.replace("+", "-")),
    ],
    "how long ranks wait for each other to fail, and how often they look: any short time does": [
        ("training/parallel/ranks.py", "", "PATIENCE = 3.0", "PATIENCE = 6.0"),
        ("training/parallel/ranks.py", "ProcessGroup._all_in_distress", _CAME, _CAME.replace("<", "<=")),
        ("training/parallel/ranks.py", "ProcessGroup.meet", "time.sleep(0.001)", "pass"),
        ("training/parallel/ranks.py", "ProcessGroup.meet", "time.sleep(0.001)", "time.sleep(0.002)"),
        ("training/parallel/ranks.py", "ProcessGroup._all_in_distress", "time.sleep(0.01)", "pass"),
        ("training/parallel/ranks.py", "ProcessGroup._all_in_distress", "time.sleep(0.01)", "time.sleep(0.02)"),
    ],
    "how long a worker process may take to end before it is killed: any few seconds do": [
        ("training/parallel/members.py", "Member.end", _END, _END.replace("5", "4")),
        ("training/parallel/members.py", "Member.end", _END, _END.replace("5", "6")),
    ],
    "from how much work on another worker pays, as measured: what workers compute does not depend on their number": [
        ("training/parallel/inference.py", "", "WORTH = 1e8", "WORTH = 200000000.0"),
        ("training/parallel/inference.py", "", "WORTH_A_PROCESS = 2e10", "WORTH_A_PROCESS = 40000000000.0"),
    ],
    "no recurrent weight, like one of a single byte: a core's cache has room for it": [
        ("training/parallel/inference.py", "alone", _U, _U.replace("=0)", "=1)")),
    ],
    "the weight of gradients that nobody reads": [
        ("training/watch.py", "adversary", _WATCHED, _WATCHED.replace("1.0", "2.0")),
    ],
    "adds a decay of zero: the same numbers for more work": [
        (
            "training/optimizers.py",
            "_decayed",
            _DECAYED,
            _DECAYED.replace("tree", "(tree").replace(" if weight_decay else grads", ")"),
        ),
    ],
    "the default of a protocol, which only says what is asked of a class: nobody calls it": [
        ("training/optimizers.py", "Optimizer.step", _STEP, _STEP.replace("1.0", "2.0")),
    ],
    "runs only where there is a GPU: the suite on CuPy and a stand-in hold what can be held without one": [
        (
            "training/loop.py",
            "_to_place_of",
            _PLACE,
            _PLACE.replace('same_place(a, b) if hasattr(a, "dtype") else a', "(a)"),
        ),
    ],
    "how wide the progress bar is and how often it is drawn, which a reader of the terminal sees and no result": [
        ("training/progress.py", "Progress.__init__", "file=stream, ...", "file=stream,"),
        ("training/progress.py", "Progress.__init__", "dynamic_ncols=True,", "dynamic_ncols=False,"),
        ("training/progress.py", "Progress.__init__", "dynamic_ncols=True, ...", "dynamic_ncols=True,"),
        ("training/progress.py", "Progress.__init__", "mininterval=0.2,", "mininterval=0.4,"),
        ("training/progress.py", "Progress.advance", _POSTFIX, _POSTFIX.replace(", refresh=False", "")),
        ("training/progress.py", "Progress.advance", _POSTFIX, _POSTFIX.replace("False", "True")),
    ],
}
