"""Mappings, Google and the syncs of calendars: everything that reads, writes and asks Google."""
