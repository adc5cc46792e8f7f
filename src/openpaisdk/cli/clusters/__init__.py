"""Commands about clusters: the list of them, what they have, the embedded one."""
