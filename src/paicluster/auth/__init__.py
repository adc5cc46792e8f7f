"""Authentication: users, passwords, tokens, tickets, sealing of job secrets. Imports `store` only.

Keys lie in the home's ``keys/`` folder, outside the database: a copy of the database alone decrypts nothing.
"""
