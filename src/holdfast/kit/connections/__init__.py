"""Connections: what an outside account granted a tenant, kept sealed and fresh."""
