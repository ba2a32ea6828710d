"""What the experiments are made of."""
