"""How two ranks connect: frames, mutual proof of the job's secret, descriptors of shared memory."""
