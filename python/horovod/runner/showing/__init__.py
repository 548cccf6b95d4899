"""Shows the figures of running jobs: to `horovodrun --status`, and to Prometheus."""
