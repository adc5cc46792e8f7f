"""OpenPAI's first API, for the clients that still speak it.

Jobs become version 2 at this door; past it there is one kind of job. Addresses, answers and shapes are the
original's; the work is done by what version 2 uses too.
"""
