"""Keys under which the parts of the API leave values for each other in the scope of a request."""

CONTEXT_KEY = "paicluster.context"
"""The `Context` of the server."""
ROUTE_KEY = "paicluster.route"
"""The `BoundRoute` of the request."""
IDENTITY_KEY = "paicluster.identity"
"""The `Identity` of the caller, once it is authenticated."""
