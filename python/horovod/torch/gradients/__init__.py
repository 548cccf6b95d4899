"""From the gradients of an optimizer to reduced ones: hooks, names, memory, and what is under way."""
