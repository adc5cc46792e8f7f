"""Mutation testing: how many small changes of the code the tests notice.

`run` changes one place of an area at a time, in memory, and runs the tests that execute it until one fails.
"""
