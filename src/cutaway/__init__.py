"""Standard names for the insides of transformers."""
