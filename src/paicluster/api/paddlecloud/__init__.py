"""PaddleCloud's dialect: its jobs, logs, quotas and files, on the jobs, storage and engines of OpenPAI's.

A job of this dialect is a version 2 job whose `extras.paddlecloud` keeps what was submitted. Imports what the
other dialects import. docs/contributing/paddlecloud.md has the rules.
"""
