"""HTTP API. Routes are thin: authenticate, parse, one call inward, OpenPAI's exact response."""
