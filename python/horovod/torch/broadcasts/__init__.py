"""How parameters, and the state of an optimizer, become equal on all ranks."""
