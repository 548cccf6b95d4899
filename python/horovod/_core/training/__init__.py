"""What training adds to the collectives: reducing gradients, rates of learning, elastic states."""
