"""WebHDFS over the cluster's own storage: what Hadoop's clients, `hdfscli` and fsspec expect, word for word.

A request is read into a `Call` (who, which path, which parameters); an operation answers it. Errors are
Hadoop's RemoteExceptions.
"""
