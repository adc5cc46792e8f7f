"""Holds one task: claims its attempt, keeps its process tree, writes its logs and its exit record.

A supervisor shares nothing with the server but the attempt folder, so either may die and be
replaced. The table in docs/contributing/architecture.md says what the folder's files mean.
"""
