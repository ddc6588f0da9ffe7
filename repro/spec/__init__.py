"""What is run and what it sends, as pure functions of a config, in plain Python."""
