"""Engines: they run tasks. One interface, one package for each engine, one contract suite for all of them.

An engine knows attempts by their uid, and nothing of jobs, users or the database. `registry` lists the kinds.
"""
