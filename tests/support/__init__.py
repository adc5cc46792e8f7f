"""Fixtures, rigs and services that tests share. Imported as `support.<module>`; holds no tests."""
