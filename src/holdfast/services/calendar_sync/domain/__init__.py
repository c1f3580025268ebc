"""Decisions of the service, free of store and kit: guests of events, rows of mappings, states of syncs."""
