"""Hosts and slots that a cluster's scheduler has given to the job in which horovodrun runs; one plug-in each."""
