"""WebHDFS over the cluster's own storage, exactly as Hadoop's clients, `hdfscli` and fsspec expect it.

A request is parsed into a `WebHdfsRequest` (user, path, parameters); an operation handles it. Errors are
Hadoop's RemoteExceptions.
"""
