"""Where durable commits lie, and whether that can be: asked by the ranks, and by a launcher before it starts any."""
