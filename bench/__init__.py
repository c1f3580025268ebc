"""Benchmarks: Holdfast against hand-written code on the same driver, interleaved in one run."""
