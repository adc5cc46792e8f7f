"""Storages outside the cluster (buckets, shares, HDFS) as the portal, the mounts and jobs see them.

Their clients are those of `openpaisdk.storage`, imported where such a storage is read or changed. Imports
neither the API nor the controller nor an engine, and nothing of HTTP.
"""
