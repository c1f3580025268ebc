"""Templates, assets and number formats of every page: the console's and the services' public ones."""
