"""Connections of clients to running tasks: exec sessions, forwarded ports. Imported by `api.context`."""
