"""Hosts and their slots, and this host's cores and limits: where ranks can run."""
