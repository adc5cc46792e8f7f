"""Clients and formats that tasks, cluster and SDK share: HTTP, WebSocket, WebHDFS, calls of functions.

Standard library only and Python >= 3.6, like all of the runtime, and for every system on which the SDK runs.
It imports nothing else of ours.
"""

CA_FILE = "authority.pem"
"""Beside the runtime: certificates by which tasks verify the server."""
