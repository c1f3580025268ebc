"""Holdfast against hand-written loops on the same driver, measured in turn in one run."""
