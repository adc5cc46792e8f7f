"""Version 2 of OpenPAI's API, with a few additions of our own."""
