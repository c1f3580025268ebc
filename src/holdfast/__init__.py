"""Holdfast keeps what an integration must not forget."""

__version__ = "0.1.0"
