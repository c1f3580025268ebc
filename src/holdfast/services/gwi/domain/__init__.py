"""Decisions, without store or kit."""
