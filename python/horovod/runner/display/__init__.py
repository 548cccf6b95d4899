"""What the ranks write, as the user sees it: lines, prefixes, a terminal, tracebacks."""
