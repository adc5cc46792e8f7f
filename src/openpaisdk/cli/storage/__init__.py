"""Commands about files on storages."""
