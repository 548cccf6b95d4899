"""Elastic jobs on Ray: the driver of `runner.elastic` with actors as its workers. Design 0038.

`nodes` is pure: from what Ray says of its nodes to hosts with slots; `source` asks Ray again and again. `crew` makes,
places and ends the actors, `job` follows a call to its end. `worker` is the actor, `roster` what the driver says to it.
"""
