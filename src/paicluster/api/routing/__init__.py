"""Routing: declarations of routes, and how a request finds its own. Imports nothing of the API."""
