"""Chaos campaign: clients of a real server, a seeded schedule of faults, and a check of what clients saw.

`make chaos MINUTES=30 SEED=1` runs it (`python -m chaos --help`). It imports what the tests share, `support`.
"""
