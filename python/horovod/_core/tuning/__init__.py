"""Autotune, the pure part (design 0015): which parameters to try, what a sample scores, what to keep."""
