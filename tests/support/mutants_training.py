"""One-line mistakes in training and its data that the suite must notice; run by `tests.test_mutants`."""

from tests.support.mutants import Mutant

LOOP, CHECKPOINTS = "training/test_loop.py", "training/test_checkpoints.py"

TABLE = {
    "training/loop.py": [
        ("length of a window not in the rate", " * task.rate(state.step)", "", LOOP),
        ("step schedule one late", "recipe.step_schedule(state.step)", "recipe.step_schedule(state.step + 1)", LOOP),
    ],
    "training/runs/checkpoints.py": [
        ("arrays of a damaged checkpoint swept away", "damaged.add(path.stem)", "pass", CHECKPOINTS),
    ],
    "tasks/language/task.py": [
        (
            "one rate for windows of any length",
            "return self._windows.window(step, slice(0, 1)).scale",
            "return 1.0",
            "tasks/test_language.py",
        ),
    ],
    "tasks/methods.py": [
        (
            "training scores the last mask",
            'keep = "last" if values["search"] == "greedy" else None',
            "keep = None",
            "commands/test_text.py",
        ),
        (
            "the last mask for every search",
            'keep = "last" if values["search"] == "greedy" else None',
            'keep = "last"',
            "commands/test_images.py",
        ),
    ],
    "data/texts/buckets.py": [
        ("batches of a pool not shuffled", "[permutation(rng, buckets.per_epoch)]", "", "data/test_buckets.py"),
    ],
}
MUTANTS = [Mutant(file, *row) for file, rows in TABLE.items() for row in rows]
