"""What measures: jobs that take orders, slices in turn, rows of values, the machine's state, the report."""
