"""The life of the engine in this process: start, session, process sets, operations in flight, end."""
