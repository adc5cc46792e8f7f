"""Scheduling: placement, fair share, backfill, borrowing and preemption as pure functions over a snapshot.

No I/O, no clock, no database; imports only ``paiprotocol.jobs``.
"""
