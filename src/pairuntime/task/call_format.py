"""Former name of ``pairuntime.transport.call_format``: an SDK of version 0.5 in a task imports it."""

from pairuntime.transport.call_format import *  # noqa: F403
