"""Runs jobs on a Slurm cluster: an attempt is one allocation, in which each task has a supervisor of ours.

Slurm finds the places. What is true of an attempt is read from its folder, on a file system that all nodes
share, or to which tasks report over the network; Slurm is asked, once for all jobs, only for what no folder
tells: why a job waits, what took one away.
"""
