"""What the job routes of all dialects share: parsing, caches, turns. Imported by `api.context`."""
