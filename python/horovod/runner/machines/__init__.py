"""Where ranks can run: hosts, their slots and addresses, and this host's names, cores, limits and variables."""
