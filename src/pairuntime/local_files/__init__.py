"""Folders and file systems of this machine: removal of trees, network file systems, system calls in a row.

For SDK and cluster: `remove_tree` needs Python 3.7. Tasks use only `replaceable_folder` and
`log_times_format`.
"""
