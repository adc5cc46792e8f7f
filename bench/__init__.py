"""Measures ours against the machine's own limit or a peer, in the same run, and prints one table.

`python -m bench` runs everything; `python -m bench spine cli` runs the named parts.
"""
