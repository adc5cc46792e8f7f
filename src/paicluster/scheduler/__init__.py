"""Who runs next and where: pure functions over a snapshot. No I/O, no clock, no database."""
