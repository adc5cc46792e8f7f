"""Settings of a cluster: cluster.yaml, its schema and typed sections. Imports `paiprotocol`, engine kinds and
`scheduler`."""
