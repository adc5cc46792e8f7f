"""The SDK as Python objects: clusters, jobs, a client. Everything may be used in threads, and with ``await``.

Built on the rooms below it; prints nothing. ``openpaisdk``, ``openpaisdk.core`` and ``openpaisdk.cluster``
give its names to users.
"""
