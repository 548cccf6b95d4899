"""The board of a job that one of its ranks keeps, and the connections of the others to it."""
