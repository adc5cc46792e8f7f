"""Wire: requests and responses as types, bodies, errors, `/openapi.json`. Of the API it imports only
`api.routing`.

The tests validate every response they see against the types, so a wrong description fails.
"""
