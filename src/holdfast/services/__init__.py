"""The services, one folder each: found by their place."""
