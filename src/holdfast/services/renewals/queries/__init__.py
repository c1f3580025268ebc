"""Reads of one portfolio, for operations and surfaces."""
