"""Former name of `pairuntime.transport.http1`: results of version 0.5 name its errors."""

from pairuntime.transport.http1 import ConnectTimeout, HttpProtocolError

__all__ = ["ConnectTimeout", "HttpProtocolError"]
