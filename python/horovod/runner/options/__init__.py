"""From what users write, flags, keywords and a file, to values of settings."""
