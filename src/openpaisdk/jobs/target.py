"""The cluster a command means, as jobs and commands ask for it."""

from __future__ import annotations

from openpaisdk.connect import endpoint_of, open_cluster, open_embedded, open_entry

__all__ = ["endpoint_of", "open_cluster", "open_embedded", "open_entry"]
