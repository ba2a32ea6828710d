"""Words in and words out: normalised embeddings, the sampled softmax, the softmax by blocks of rows."""
