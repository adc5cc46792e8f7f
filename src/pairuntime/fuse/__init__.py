"""FUSE file systems with the standard library alone: the kernel's protocol over ``/dev/fuse``, no libfuse.

``file_system`` is the interface that a storage implements, ``mount_point`` mounts and serves one. Linux only.
"""
