"""Kept for import paths that other people use: small helpers, each complete in itself."""
