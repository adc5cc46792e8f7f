"""Settings of a cluster: cluster.yaml, its schema and typed sections. Imports `protocol` and engine kinds."""
