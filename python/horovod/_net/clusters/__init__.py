"""Which rank this process is, as the launcher or cluster that started it tells."""
