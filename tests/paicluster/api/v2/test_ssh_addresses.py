"""Addresses of tasks that serve SSH themselves: the server connects to nodes, and nowhere else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from paicluster.api.v2 import ssh
from paicluster.engines.interface import Node
from paicluster.store.rows import TaskRow


class _Nodes:
    async def current(self) -> Sequence[Node]:
        return [Node("n1", "127.0.0.1", 1, 1000), Node("n2", "127.0.0.2", 1, 1000)]


def test_server_connects_to_the_address_of_the_node_whatever_a_task_reports() -> None:
    asked: list[str] = []

    async def find() -> list[tuple[str, str]]:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(writer.get_extra_info("sockname")[0])
            writer.write(b"SSH-2.0-any\r\n")
            writer.close()

        server = await asyncio.start_server(greet, ["127.0.0.1", "127.0.0.2", "127.0.0.3"], 0)
        async with server:
            at = {one.getsockname()[0]: one.getsockname()[1] for one in server.sockets}

            def task(number: int, node: str | None, reported: str, port: int) -> TaskRow:
                ports = json.dumps({"ssh": [port]})
                return TaskRow(
                    f"u{number}",
                    1,
                    0,
                    "main",
                    0,
                    number,
                    0,
                    "t",
                    "AttemptRunning",
                    node=node,
                    ip=reported,
                    ports=ports,
                )

            tasks = [
                task(0, "n1", "127.0.0.1", at["127.0.0.1"]),
                task(1, "n2", "127.0.0.3", at["127.0.0.2"]),
                task(2, "forged", "127.0.0.3", at["127.0.0.3"]),
                task(3, None, "127.0.0.3", at["127.0.0.3"]),
            ]
            return [(one.id, one.ssh_ip) for one in await ssh._own_servers(tasks, _Nodes())]

    assert asyncio.run(find()) == [("u0", "127.0.0.1"), ("u1", "127.0.0.2")]
    assert sorted(asked) == ["127.0.0.1", "127.0.0.2"]
