"""Former name of ``pairuntime.transport.websocket``: an SDK of version 0.5 in a task imports it."""

from pairuntime.transport.websocket import *  # noqa: F403
