"""What a machine has of GPUs and their libraries: found by their files, asked in a process of their own."""
