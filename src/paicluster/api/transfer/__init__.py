"""Faster ways in and out of the cluster's storage than WebHDFS has: whole trees, packs, parts, open files.

Ours alone: nobody else's client speaks it, so it may change; `GET /api/v2/transfer` says which version it is.
What may be done to whose files is asked of `paicluster.files`, the same as for WebHDFS.
"""
