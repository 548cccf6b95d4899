"""The page of results: from the report of a run to figures, from these to plots and text."""
