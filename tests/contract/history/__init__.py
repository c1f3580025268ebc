"""Random histories: the same operations on every engine must get the same answers."""
