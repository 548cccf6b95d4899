"""Kept for import paths that other people use."""
