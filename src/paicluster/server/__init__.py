"""Composition root and process life of the server: assembly, home lock, signals, HTTP. May import all."""
