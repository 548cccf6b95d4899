"""The collectives, written once for every framework: arguments, checks, names, submission."""
