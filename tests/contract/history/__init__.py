"""Random histories: the same operations on every engine must have the same results."""
