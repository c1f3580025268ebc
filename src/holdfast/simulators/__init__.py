"""Stand-ins for outside services, over real HTTP: for the demo, the tests and people without credentials."""
