"""Python API of the SDK: clusters, jobs, a client. All objects are thread-safe and have ``await`` variants.

May import every package of the SDK except ``cli`` and ``notebook``; only ``wait`` prints, and only for a
person. ``openpaisdk``, ``openpaisdk.core`` and ``openpaisdk.cluster`` export its names to users.
"""
