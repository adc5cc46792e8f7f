"""Formats of transfers, shared by both ends: content hashes, the pack format for small files, ranges of open
files, the HDFS file checksum, the tar archive of sources, sorted listings.

Imports ``paiprotocol.errors`` and the standard library. Packages that only speed it up (xxhash, crc32c) are
imported inside functions or passed in by the caller.
"""
