"""Kept for import paths that other people use: re-exports, and small helpers that are complete in themselves."""
