"""Former name of ``pairuntime.transport.relay``: an SDK of version 0.5 in a task imports it."""

from pairuntime.transport.relay import *  # noqa: F403
