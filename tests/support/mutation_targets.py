"""Which files are mutated by `tests.support.mutation`, and which files of tests should notice.

The tests of a file are those of its name, gradients and properties: the quickest first, since the first failure ends a
run. A file of the paper or of the training core stands either here or in `LEFT_OUT`.
"""

from tests.support.copies import ROOT

_CELL = (
    "test_cells.py",
    "gradients/test_zeros.py",
    "gradients/test_hhat.py",
    "gradients/test_cells.py",
    "test_bad_input.py",
    "properties/test_cells.py",
)
_SEARCH = (
    "test_searches.py",
    "test_adversary_options.py",
    "test_adversary.py",
    "test_adversary_bad_input.py",
    "test_relax.py",
    "test_relax_neighbours.py",
    "properties/test_searches.py",
    "gradients/test_influence.py",
)
_TERM = (
    "test_records.py",
    "test_regularizers.py",
    "test_foreign_model.py",
    "test_noise.py",
    "gradients/test_regularizers.py",
    "test_text_regularizers.py",
)

TARGETS: dict[str, tuple[str, ...]] = {
    "adversary.py": ("test_adversary_options.py", "test_adversary.py", "test_adversary_bad_input.py"),
    "backend.py": ("test_backend.py", "base/test_gpu.py", "test_bad_input.py"),
    "bounds.py": ("test_bounds.py", "properties/test_theorems.py"),
    "counterexamples.py": ("test_counterexamples.py",),
    "distances.py": (
        "test_distances.py",
        "test_bad_input_layers.py",
        "gradients/test_distances.py",
        "properties/test_distances.py",
    ),
    "flip.py": ("test_flip.py", "test_bad_input.py", "properties/test_strict_flip.py"),
    "gradcheck.py": ("test_gradcheck.py", "test_records.py"),
    "gru.py": ("test_gru.py", *_CELL),
    "headcheck.py": ("test_modelcheck.py",),
    "influence.py": ("test_influence.py", "test_zero_maps.py", "gradients/test_influence.py"),
    "layers.py": ("test_layers.py", "gradients/test_layers.py", "test_bad_input_layers.py"),
    "lstm.py": ("test_lstm.py", *_CELL),
    "masks.py": ("test_masks.py", "test_bad_input.py"),
    "memory.py": ("test_records.py", "test_memory.py", "training/test_memory.py"),
    "modelcheck.py": ("test_modelcheck.py",),
    "objective.py": ("test_records.py", *_SEARCH),
    "perturbations.py": ("test_records.py", "test_input_perturbations.py"),
    "protocol.py": ("test_foreign_model.py", "models/test_classifier.py", *_SEARCH),
    "regularizers.py": _TERM,
    "relax.py": ("test_relax.py", "test_relax_neighbours.py", "properties/test_relaxed_masks.py"),
    "rnn.py": ("test_rnn.py", *_CELL),
    "searches.py": _SEARCH,
    "terms.py": _TERM,
    "torch_layout.py": ("test_torch_layout.py", "test_bad_input_layers.py"),
    "training/clip.py": ("training/test_clip.py",),
    "training/divergence.py": ("training/test_divergence.py",),
    "training/recipe.py": ("training/test_loop.py",),
    "training/ema.py": ("training/test_schedules.py", "training/test_loop.py"),
    "training/finite.py": ("training/test_loop.py",),
    "training/interrupts.py": ("training/test_loop.py", "training/test_kill.py::test_ctrl_c"),
    "training/loop.py": (
        "training/test_loop.py",
        "training/test_watch.py",
        "training/test_log.py",
        "tasks/test_images.py",
    ),
    "training/memory.py": ("training/test_memory.py",),
    "training/optimizers.py": ("training/test_optimizers.py",),
    "training/parallel/choose.py": ("training/test_threads.py", "training/test_processes.py"),
    "training/parallel/inference.py": ("training/test_inference.py",),
    "training/parallel/members.py": ("training/test_inference.py", "training/test_processes.py"),
    "training/parallel/processes.py": ("training/test_processes.py",),
    "training/parallel/ranks.py": ("training/test_ranks.py",),
    "training/parallel/threads.py": ("training/test_threads.py",),
    "training/parallel/workers.py": (
        "training/test_ranks.py",
        "training/test_threads.py",
        "training/test_processes.py",
    ),
    "training/progress.py": ("training/test_log.py", "training/test_loop.py"),
    "training/runs/checkpoints.py": ("training/test_checkpoints.py",),
    "training/runs/folder.py": ("training/test_log.py", "tasks/test_image_runs.py"),
    "training/runs/log.py": ("training/test_log.py",),
    "training/runs/packing.py": ("training/test_packing.py", "training/test_checkpoints.py"),
    "training/schedules.py": ("training/test_schedules.py",),
    "training/task.py": ("training/test_loop.py", "tasks/test_images.py"),
    "training/update.py": ("training/test_loop.py",),
    "training/watch.py": ("training/test_watch.py",),
}

_NAMES = ("test_bad_input.py", "test_bad_input_layers.py", "tasks/test_config.py")
FURTHER: dict[str, tuple[str, ...]] = {
    "adversary.py": (
        "test_memory.py",
        "test_searches.py",
        "test_noise.py",
        "test_text_regularizers.py",
        "test_bad_input.py",
    ),
    "bounds.py": ("test_counterexamples.py", "test_bad_input.py"),
    "counterexamples.py": ("properties/test_theorems.py",),
    "gradcheck.py": ("gradients/test_layers.py", "test_foreign_model.py"),
    "layers.py": ("words/test_embedding.py", "gradients/test_embedding.py", "models/test_classifier.py"),
    "memory.py": ("properties/test_searches.py", "tasks/test_config.py"),
    "objective.py": ("test_memory.py", "test_regularizers.py", "test_foreign_model.py", "test_not_finite.py"),
    "perturbations.py": (
        "gradients/test_regularizers.py",
        "test_text_regularizers.py",
        "test_regularizers.py",
        *_NAMES,
    ),
    "protocol.py": ("test_memory.py", "test_regularizers.py", "models/test_language.py", "test_text_regularizers.py"),
    "regularizers.py": ("test_adversary_options.py", "test_memory.py", "training/test_memory.py", *_NAMES),
    "searches.py": ("test_memory.py", "tasks/test_config.py", "test_bad_input.py"),
    "terms.py": ("test_memory.py", "models/test_language_regularizers.py", "tasks/test_images.py"),
}
"""Tests of other files, which are run for the mutants that the tests of the file itself let through.

That they pass without a mutant is known from the suite."""

SLOW = (
    *(file for file in TARGETS if file.startswith("training/parallel/")),
    "memory.py",
    "relax.py",
    "training/watch.py",
    "training/interrupts.py",
    "training/memory.py",
    "training/runs/folder.py",
)
"""Files whose tests start processes or train: left out of samples."""

FINISHED = ("influence.py", "masks.py", "rnn.py")
"""Files of which every mutant was run, and is noticed or explained: `--deep` runs all of theirs."""

RECENT = (
    "headcheck.py",
    "modelcheck.py",
    "objective.py",
    "torch_layout.py",
    *(f"training/{name}.py" for name in ("divergence", "loop", "progress", "recipe", "update")),
    "training/runs/folder.py",
)
"""Files that were written or changed since their mutants were last run whole: left out of samples until they are."""

LEFT_OUT = {
    "__init__.py": "names only",
    "__main__.py": "one call",
    "cli.py": "words of the command line: tests/commands hold what it does",
    "torch_door.py": "its tests need PyTorch, which most machines lack",
    "plots.py": "colours and places on a page: a reader judges them",
    "training/__init__.py": "names only",
    "training/parallel/__init__.py": "names only",
    "training/parallel/mpi.py": "its tests start mpiexec, which most machines lack",
    "training/runs/__init__.py": "names only",
}


def everything() -> list[str]:
    """The files of the paper and of the training core."""
    package = ROOT / "minadv"
    files = [*package.glob("*.py"), *(package / "training").rglob("*.py")]
    return sorted(str(file.relative_to(package)) for file in files)
