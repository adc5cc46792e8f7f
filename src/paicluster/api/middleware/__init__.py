"""HTTP policies around the routes: request filter, rate limits, security headers, audit log, slow clients.

Imports `paicluster.auth`, `paicluster.config`, `paicluster.metrics` and the basic modules of `paicluster.api`
(`responses`, `dialect`), never a route.
"""
