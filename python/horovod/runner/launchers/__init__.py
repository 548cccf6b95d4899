"""How the ranks of a job are started: `base` says what a launcher is, `local` starts them on this machine."""
