"""The rows of the report: each file measures a group of them."""
