"""mpirun: which one it is, the line that starts a job with it, what is relayed. `launchers.mpirun` runs it."""
