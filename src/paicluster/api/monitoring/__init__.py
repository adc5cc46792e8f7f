"""Health and metrics of the server, for probes and Prometheus."""
