"""What the figures of a job's ranks say: shares of the time, the slowest rank, advice. Pure."""
