"""What a job of many hosts would cost: the simulator (benchmarks/native/simulate), and tables of its answers."""
