"""Decisions about stories: pure functions, without store or network."""
