"""Timings of pulls and of the removal of containers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerTimings:
    # Stopped containers are removed together, after this time without another one, or when there are many.
    removal_delay_s: float = 3.0
    # Failed removals are retried: the docker daemon may be down.
    removal_retry_interval_s: float = 60.0
    # Of progress notices of a pull. It doubles up to the maximum.
    progress_interval_s: float = 10.0
    progress_interval_max_s: float = 60.0
    # Until the registry sends the manifest. podman itself retries for minutes when the registry limits its
    # rate.
    manifest_timeout_s: float = 600.0


DEFAULT_TIMINGS = ContainerTimings()
