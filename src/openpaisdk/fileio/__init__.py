"""File I/O shared by both ends of a transfer: content hashes, the pack format for small files, reads and
writes of file ranges, the HDFS file checksum, removal of directory trees.

May import ``openpaisdk.errors`` and the standard library. Packages that only speed it up (xxhash, crc32c) are
imported inside functions or passed in by the caller.
"""
