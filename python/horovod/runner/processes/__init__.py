"""The ranks of a host as processes: their keeper, their pipes and directory, how they end and what they use."""
