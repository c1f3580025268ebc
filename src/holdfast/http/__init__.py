"""The HTTP surface: thin, over the parts that do the work."""
