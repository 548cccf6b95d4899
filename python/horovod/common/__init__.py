"""Import paths that users' programs know from upstream. Re-exports only; nothing of ours imports this package."""
