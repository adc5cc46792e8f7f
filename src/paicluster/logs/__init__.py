"""Reading of task logs by logical offset, and notification of growth.

Imports only `paiprotocol` and `pairuntime.local_files`.
"""
