"""Typed clients of outside APIs, one folder each; none knows another, services put them together."""
