"""Who someone is and what was entrusted to us: passwords, tokens, the sealing of job secrets.

Keys lie in the home's ``keys/`` folder, outside the database: a copy of the database alone opens nothing.
"""
