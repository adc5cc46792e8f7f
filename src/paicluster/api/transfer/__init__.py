"""HTTP routes for bulk transfer, faster than WebHDFS: tree listings, packs, parts of uploads, fd passing.

Used only by our own client, so it may change; `GET /api/v2/transfer` reports the version. `paicluster.files`
checks permissions, as for WebHDFS.
"""
