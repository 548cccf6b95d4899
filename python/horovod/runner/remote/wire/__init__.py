"""What launcher and agent send one another: frames, control messages, and signs of life."""
