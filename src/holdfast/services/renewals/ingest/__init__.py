"""How the platform's tables come in: sources, imports, and keeping up with what changes there."""
