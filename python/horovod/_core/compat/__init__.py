"""Names and small functions that programs for upstream import; nothing of ours needs them."""
