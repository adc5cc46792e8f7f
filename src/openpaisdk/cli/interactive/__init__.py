"""Commands that connect with a running job: shells, ports, SSH, notebooks, the portal."""
