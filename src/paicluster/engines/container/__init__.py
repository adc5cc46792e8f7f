"""Container engine: tasks run in containers of podman or docker; those without an image as plain processes.

Builds on the process engine, so that one engine accounts for all tasks of the machine.
"""
