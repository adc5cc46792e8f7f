"""Supervisor of one task: claims the attempt, controls the process tree, writes logs and the exit record.

A supervisor shares nothing with the server but the attempt folder, so either may die and be
replaced. The table in docs/contributing/architecture.md says what the folder's files mean.
"""
