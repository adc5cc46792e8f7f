"""Metrics: requests, event loop, usage of resources, Prometheus text format.

Imports no other package of ours.
"""
