"""What lies in `deploy/`: manifests against the schemas of Kubernetes and of the MPI operator, the chart by Helm's own
engine, the image's recipe by hadolint, its trust between containers by real ssh servers.
"""
