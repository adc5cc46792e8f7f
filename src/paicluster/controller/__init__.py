"""The one loop that moves jobs: compares what should be with what is, writes down what it will do, does it.

It can be stopped and started anywhere: everything it knows is in the database or in the attempt folders.
"""
