"""A job that stands still: how that is noticed, and the dumps of its ranks in one file."""
