"""The language model that a classifier of texts is pre-trained as."""
