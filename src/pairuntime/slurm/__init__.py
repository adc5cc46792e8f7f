"""What runs inside a Slurm allocation: finds out where each task came to be, tells it to all, starts them.

A gang has a folder, on a file system that every node sees, with ``gang.json`` in it; each task has its
attempt folder, as with any engine. ``pairuntime.pyz slurm GANG`` is all that the batch script does.
Where there is no such file system, `boot` fetches the same folders from the server, and `carrying` brings
back what is written into them.
"""
