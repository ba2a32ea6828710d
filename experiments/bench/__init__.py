"""The speed of a training step, beside PyTorch, JAX and the machine's limit."""
