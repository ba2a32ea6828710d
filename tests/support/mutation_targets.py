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
    "test_adversary_bad_input.py",
    "test_regularizers.py",
    "test_foreign_model.py",
    "test_noise.py",
    "gradients/test_regularizers.py",
    "test_text_regularizers.py",
)

_READERS = (
    "test_how_many_readers",
    "test_readers_and_their_blas_threads",
    "test_the_product_whatever_the_user_sets",
    "test_more_workers_than_cores",
    "test_as_many_readers_as_there_is_memory_for",
    "test_an_error_ends_all_readers",
    "test_workers_that_are_lent_may_end_in_any_order",
    "test_what_cannot_be_sent_is_read_here",
)
_THREADS = (
    "test_an_error_of_any_is_raised_here",
    "test_what_numpy_is_to_do_about_overflow_holds_in_all_threads",
    "test_a_closed_team_leaves_no_thread",
    "test_one_is_no_team",
)
_PARTS = (
    "test_groups_are_dealt_out_evenly",
    "test_the_contributions_of_all_parts_are_the_whole",
    "test_a_share_draws_its_rows_of_the_whole_batchs_masks",
    "test_alone_reuses_its_buffers",
)
_MEMORY = (
    "test_flat_memory_holds_a_tree",
    "test_flat_memory_is_as_large_as_its_arrays_and_is_given_back",
    "test_flat_memory_is_a_file_on_disk_only_where_it_must_be",
)
_TABLE = (
    "test_what_is_put_is_recalled",
    "test_a_table_takes_a_bit_for_each_unit",
    "test_lent_masks_are_those_of_other_seen_examples",
    "test_a_carry_that_is_no_table_is_handed_on_as_it_is",
    "test_the_order_of_the_workers_rows_makes_no_difference",
    "test_the_next_visit_is_handed_what_the_last_one_found",
    "test_examples_are_counted_and_masks_stay_within_the_budget",
)
TARGETS: dict[str, tuple[str, ...]] = {
    "adversary.py": (
        "test_records.py",
        "test_adversary_options.py",
        "test_adversary.py",
        "test_adversary_bad_input.py",
        "test_zero_maps.py",
        "test_memory.py",
    ),
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
    "headcheck.py": ("test_headcheck.py", "test_modelcheck.py"),
    "influence.py": ("test_influence.py", "test_zero_maps.py", "gradients/test_influence.py"),
    "layers.py": ("test_layers.py", "gradients/test_layers.py", "test_bad_input_layers.py"),
    "lstm.py": ("test_lstm.py", *_CELL),
    "masks.py": ("test_masks.py", "test_bad_input.py"),
    "memory.py": ("test_records.py", "test_memory.py", "training/test_memory.py"),
    "modelcheck.py": ("test_modelcheck.py", "test_modelcheck_mistakes.py", "test_headcheck.py"),
    "objective.py": ("test_records.py", "test_zero_maps.py", *_SEARCH),
    "perturbations.py": ("test_records.py", "test_input_perturbations.py"),
    "protocol.py": ("test_records.py", "test_foreign_model.py", "models/test_classifier.py", *_SEARCH),
    "regularizers.py": _TERM,
    "relax.py": ("test_relax.py", "test_relax_neighbours.py", "properties/test_relaxed_masks.py"),
    "rnn.py": ("test_rnn.py", *_CELL),
    "searches.py": _SEARCH,
    "terms.py": _TERM,
    "torch_layout.py": ("test_torch_layout.py", "test_torch_classifier.py", "test_bad_input_layers.py"),
    "training/clip.py": ("training/test_clip.py",),
    "training/divergence.py": ("training/test_divergence.py",),
    "training/recipe.py": ("training/test_recipe.py", "training/test_loop.py"),
    "training/ema.py": ("training/test_schedules.py", "training/test_loop.py"),
    "training/finite.py": ("training/test_finite.py", "training/test_loop.py"),
    "training/interrupts.py": ("training/test_interrupts.py",),
    "training/loop.py": ("training/test_callbacks.py", "training/test_loop.py"),
    "training/memory.py": tuple(f"training/test_memory.py::{test}" for test in _TABLE),
    "training/optimizers.py": ("training/test_optimizers.py",),
    "training/parallel/choose.py": ("training/test_choose.py",),
    "training/parallel/inference.py": (
        "training/test_readers.py",
        *(f"training/test_inference.py::{test}" for test in _READERS),
        "training/test_members.py",
    ),
    "training/parallel/members.py": (
        "training/test_worker_process.py",
        "training/test_worker_threads.py",
        "training/test_members.py",
        "training/test_inference.py::test_a_reader_that_dies_does_not_speak_of_training",
        "training/test_processes.py::test_an_error_in_a_worker_is_raised_here",
    ),
    "training/parallel/processes.py": (
        *(f"training/test_processes.py::{test}" for test in _MEMORY),
        "training/test_worker_threads.py",
        "training/test_members.py",
        "training/test_processes.py::test_what_cannot_be_sent_is_said",
    ),
    "training/parallel/ranks.py": ("training/test_ranks.py",),
    "training/parallel/threads.py": (
        *(f"training/test_threads.py::{test}" for test in _THREADS),
        "training/test_worker_threads.py",
        "training/test_members.py",
    ),
    "training/parallel/workers.py": (
        "training/test_parts.py",
        *(f"training/test_processes.py::{test}" for test in _PARTS),
        "training/test_members.py",
    ),
    "training/progress.py": (
        "training/test_log.py::test_bar_on_a_terminal",
        "training/test_log.py::test_the_bar_of_a_run",
        "training/test_log.py::test_no_bar_elsewhere",
        "training/test_log.py::test_a_run_is_work_that_goes_on",
        "training/test_log.py::test_work_with_a_bar_of_its_own_needs_no_other",
    ),
    "training/runs/checkpoints.py": ("training/test_checkpoints.py",),
    "training/runs/folder.py": ("training/test_folder.py",),
    "training/runs/log.py": ("training/test_log.py",),
    "training/runs/overwriting.py": ("training/test_overwriting.py", "training/test_folder.py"),
    "training/runs/packing.py": ("training/test_packing.py", "training/test_checkpoints.py"),
    "training/runs/sound.py": ("training/test_sound.py",),
    "training/schedules.py": ("training/test_schedules.py", "training/test_recipe.py"),
    "training/task.py": (
        "training/test_inference.py::test_how_many_readers",
        "training/test_inference.py::test_as_many_readers_as_there_is_memory_for",
        "training/test_processes.py::test_how_many_workers",
    ),
    "training/update.py": ("training/test_loop.py",),
    "training/watch.py": ("training/test_watch.py",),
}

_NAMES = ("test_bad_input.py", "test_bad_input_layers.py", "tasks/test_config.py")
FURTHER: dict[str, tuple[str, ...]] = {
    "adversary.py": (
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
    "relax.py": ("test_records.py", "test_searches.py"),
    "searches.py": ("test_memory.py", "tasks/test_config.py", "test_bad_input.py", "test_not_finite.py"),
    "terms.py": ("test_memory.py", "models/test_language_regularizers.py", "tasks/test_images.py"),
    "torch_layout.py": ("test_strict.py::test_torch_layout",),
    "training/runs/folder.py": ("tasks/test_image_runs.py",),
    "training/runs/checkpoints.py": ("base/test_files.py", "tasks/test_image_runs.py"),
    "training/loop.py": (
        "test_zero_maps.py::test_a_checkpoint_of_an_earlier_version_has_counted_none",
        "test_zero_maps.py::test_the_log_counts_them",
        "training/test_interrupts.py",
        "training/test_divergence.py",
        "training/test_log.py::test_the_bar_of_a_run",
        "training/test_watch.py",
        "tasks/test_images.py",
    ),
    "training/memory.py": ("training/test_memory.py",),
}
"""Tests of other files, which are run for the mutants that the tests of the file itself let through."""

SLOW = (
    *(file for file in TARGETS if file.startswith("training/parallel/")),
    "memory.py",
    "relax.py",
    "training/watch.py",
    "training/memory.py",
    "training/runs/folder.py",
    "training/runs/overwriting.py",
)
"""Files whose tests start processes or train: left out of samples."""

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
