"""Sign-in of browsers: both halves of a login token, one-time links. Imported by `api.context`."""
