"""What travels on a connection of two ranks: messages, their proofs and codes, the links that carry them."""
