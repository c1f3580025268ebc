"""Outgoing HTTP: HTTP/1.1 client, connection pool and SSRF guard."""
