"""Tasks in containers of this machine, by podman or docker; those that name no image are plain processes.

One machine is one engine: what is taken by a process cannot be had by a container.
"""
