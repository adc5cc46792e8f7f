"""Notebooks: the magics of ``%load_ext openpaisdk``, cells as jobs.

May import every package of the SDK; IPython only inside functions that it calls.
"""
