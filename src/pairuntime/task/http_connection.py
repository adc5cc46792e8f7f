"""Former module of ``HttpError``: results that tasks of version 0.5 saved name it."""

from pairuntime.transport.http1 import HttpProtocolError as HttpError

__all__ = ["HttpError"]
