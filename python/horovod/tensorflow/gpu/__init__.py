"""Tensors on GPUs outside XLA: the helper that tells an operator's stream, and its use (docs/design/0023)."""
