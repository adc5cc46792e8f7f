"""Metrics of the server: requests, event loop, Prometheus text format. Imports no other package of ours."""
