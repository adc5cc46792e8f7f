"""Former name of ``pairuntime.transport.session_messages``: an SDK of version 0.5 in a task imports it."""

from pairuntime.transport.session_messages import *  # noqa: F403
