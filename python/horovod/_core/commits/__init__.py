"""Where durable commits lie, and whether they can be written there: checked by ranks, and by launchers before that."""
