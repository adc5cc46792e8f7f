"""What handlers of all dialects do with a request: authenticate, check permissions, upgrade to WebSocket."""
