"""How the schema came to be, one step a file. :mod:`.upgrade` runs them; there is no ini file."""
