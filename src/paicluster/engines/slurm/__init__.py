"""Slurm engine: an attempt is one allocation, in which each task has a supervisor of ours.

Slurm decides the placement. The state of an attempt is read from its folder, on a file system that all nodes
share, or to which tasks report over HTTP. Slurm is queried, once for all jobs, only for what no folder holds:
why a job is pending, and why one was lost.
"""
