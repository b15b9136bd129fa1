"""Functions that act on values: which value, at which positions, and for how long."""
