"""The parts of the agent: what it finds and makes on its host, and hears from the ranks there."""
