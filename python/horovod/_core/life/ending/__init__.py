"""What a rank says when it ends: why, and whether it has trained alone."""
