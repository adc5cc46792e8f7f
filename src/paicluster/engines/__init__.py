"""What runs tasks. One interface (`interface`), one room for each engine; one contract suite tests them all.

An engine knows attempts by their uid and nothing about jobs, users or the database.
"""
