"""Latency probe, in a process of its own.

`python -m bench.probe HOST PORT PATH SECONDS TOKEN [CLIENTS PAUSE [JOB]]`: CLIENTS connections (1) send GETs,
each PAUSE seconds (0.005) after the response; with JOB, POSTs of jobs whose names begin so. Prints the median
and the 99th percentile of the latencies in seconds, and the number of responses.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator

from bench.server import job


async def measure(
    host: str, port: int, requests: Iterator[bytes], until: float, pause_s: float, latencies: list[float]
) -> None:
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    while time.perf_counter() < until:
        request = next(requests)
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(head.decode())
        at = head.lower().index(b"content-length: ")
        await reader.readexactly(int(head[at + 16 :].split(b"\r\n", 1)[0]))
        latencies.append(time.perf_counter() - began)
        await asyncio.sleep(pause_s)
    writer.close()


async def main(
    host: str,
    port: str,
    path: str,
    seconds: str,
    token: str,
    clients: str = "1",
    pause_s: str = "0.005",
    prefix: str = "",
) -> None:
    def request(method: str, body: bytes) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    if prefix:
        jobs = (job(f"{prefix}-{number}", "true") for number in itertools.count())
        requests = (request("POST", json.dumps(one).encode()) for one in jobs)
    else:
        requests = itertools.repeat(request("GET", b""))
    latencies: list[float] = []
    until = time.perf_counter() + float(seconds)
    await asyncio.gather(
        *(measure(host, int(port), requests, until, float(pause_s), latencies) for _ in range(int(clients)))
    )
    print(statistics.median(latencies), statistics.quantiles(latencies, n=100)[-1], len(latencies))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
