"""The chaos matrix of elastic jobs, driven by data: which rank fails how, in which phase of its life, and what holds
afterwards.

`table` has the cases and `faults` what they are made of; `draw` makes up cases without an end from a seed. `case_run`
starts a case at a `where` and `promises` judges its story. `training`, `striking` and `bindings` are for the ranks.
`python -m chaos.marathon` is the long run: `make chaos`.
"""
