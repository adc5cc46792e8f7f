"""How a cluster is set up."""
