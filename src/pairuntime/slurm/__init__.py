"""Runtime inside a Slurm allocation: collects the placement of each task, distributes it, starts the tasks.

A gang has a folder with ``gang.json`` on a file system that every node sees; each task has its attempt
folder, as with any engine. The batch script runs ``pairuntime.pyz slurm GANG`` and nothing else. Without a
shared file system `bootstrap` downloads the same folders from the server, and `pairuntime.reports` uploads
what is written into them.
"""
