"""OpenPAI's second API, as its clients know it, with a few additions of our own."""
