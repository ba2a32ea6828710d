"""Who computes a step: one process, threads, processes, or the ranks of MPI."""
