"""Local stand-ins for outside services over real HTTP: for the demo, the tests and trying things out."""
