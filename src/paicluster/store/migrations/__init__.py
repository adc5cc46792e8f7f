"""Migrations of the schema, one revision per file. :mod:`.upgrade` runs them; there is no ini file."""
