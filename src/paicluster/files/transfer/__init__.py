"""Bulk file transfer without HTTP: packs of small files, multipart uploads, fd passing, tree listings.

Imports only `paicluster.files`, `paiprotocol` and `pairuntime.local_files`. `paicluster.api.transfer` has the
routes.
"""
