"""Transfers between two storage backends: the copy operation, its plan, the executor that runs it in
parallel, markers of interrupted copies.

May import ``storage.backends`` and the plain values of ``storage``; knows no command line and no jobs.
Nothing is imported here: a command that lists a folder must not load the executor.
"""
