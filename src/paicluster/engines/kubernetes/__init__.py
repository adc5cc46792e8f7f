"""Kubernetes engine: each task attempt is a pod; Kubernetes decides where it runs.

The API is called over HTTP, without a client library. Tasks report over HTTP to the server; the API server
tells what only it knows: why a pod waits, and what became of one that reported no end.
"""
