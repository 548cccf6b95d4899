"""The launcher's side of the agents: a link for each, the time before all are there, dumps."""
