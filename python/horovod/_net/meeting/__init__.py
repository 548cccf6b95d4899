"""Where the ranks of a host meet: the private directory, the claims there, signs of those that died."""
