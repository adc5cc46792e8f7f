"""PostgreSQL as the store's database. Imported only where one is configured: psycopg is an extra."""
