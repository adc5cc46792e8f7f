"""Load generator, run as a process: `python load.py HOST PORT SECONDS < tokens`.

Each line of the input is a user and a token. Each user sends the next request when the response has arrived:
ten job listings, ten pod listings, one submission, and so on. Prints counts of the responses as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter

import uvloop

PATTERN = ["list", "pods"] * 10 + ["submit"]


def job(name: str) -> bytes:
    role = {
        "instances": 1,
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
        "commands": ["true"],
    }
    image = {"name": "image", "type": "dockerimage", "uri": "host"}
    described = {"protocolVersion": 2, "name": name, "type": "job", "prerequisites": [image]}
    return json.dumps({**described, "taskRoles": {"main": role}}).encode()


class LoadGenerator:
    def __init__(self, host: str, port: int, seconds: float):
        self.address = (host, port)
        self.until = time.monotonic() + seconds
        self.responses: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}
        self.errors: list[str] = []

    async def run_user(self, number: int, user: str, token: str) -> None:
        random_order = random.Random(number)
        head = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
        reader, writer = await asyncio.open_connection(
            *self.address, local_addr=(f"127.0.{1 + number // 250}.{1 + number % 250}", 0), limit=1 << 24
        )
        sent = 0
        todo: list[str] = []
        while time.monotonic() < self.until:
            if not todo:
                todo = PATTERN[:]
                random_order.shuffle(todo)
            kind = todo.pop()
            body = b""
            if kind == "list":
                first = "GET /api/v2/jobs?limit=50"
            elif kind == "pods":
                first = "GET /api/v2/kubernetes/pods?limit=50"
            else:
                first, body = "POST /api/v2/jobs", job(f"load-{number}-{sent}")
                sent += 1
            started = time.monotonic()
            writer.write(f"{first} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status, text = await self._read_response(reader)
            self.slowest[kind] = max(self.slowest.get(kind, 0.0), time.monotonic() - started)
            self.responses[f"{kind} {status}"] += 1
            if status != (202 if kind == "submit" else 200) and len(self.errors) < 20:
                self.errors.append(f"{user} {first}: {status} {text[:200]!r}")
        writer.close()

    async def _read_response(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length: ")
        size = int(head[at + 16 :].split(b"\r\n", 1)[0])
        return int(head[9:12]), await reader.readexactly(size)

    async def run_user_or_record_error(self, number: int, user: str, token: str) -> None:
        try:
            await self.run_user(number, user, token)
        except (OSError, EOFError, ValueError) as error:
            self.errors.append(f"{user}: {error!r}")


async def main(host: str, port: int, seconds: float) -> None:
    users = [line.split() for line in sys.stdin.read().splitlines()]
    load = LoadGenerator(host, port, seconds)
    await asyncio.gather(
        *(load.run_user_or_record_error(n, user, token) for n, (user, token) in enumerate(users))
    )
    print(json.dumps({"responses": load.responses, "slowest": load.slowest, "errors": load.errors}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
