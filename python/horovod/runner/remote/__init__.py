"""Ranks on other hosts: the agent that runs there, and the launcher's side of it. Both speak as `wire` has it."""
