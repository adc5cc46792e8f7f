"""Bulk file transfer without HTTP: packs of small files, multipart uploads, fd passing, tree listings.

Imports only `paicluster.files`, `openpaisdk.fileio` and `openpaisdk.errors`. `paicluster.api.transfer` has
the routes.
"""
