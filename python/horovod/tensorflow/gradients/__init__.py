"""From gradients to reduced ones: tapes, what several backward passes add up, and the checks of parameters."""
