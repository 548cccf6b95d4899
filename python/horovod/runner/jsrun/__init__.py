"""jsrun of IBM's Job Step Manager: its rank file, its line, what it cannot do."""
