"""A job from its start to its end: what is heard of the ranks, and what is done about it."""
