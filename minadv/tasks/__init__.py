"""The tasks: images, texts, pre-training and language models."""
