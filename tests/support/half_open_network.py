"""A client behind a router that can swallow packets: neither end is told, as when a cable is cut far away."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from support.external_services import debian


class HalfOpenNetwork:
    """Two network namespaces, client and router. The server runs outside, at ``server_address``."""

    def __init__(self) -> None:
        suffix = f"{os.getpid() % 100_000}"
        self.client = f"client{suffix}"
        self.router = f"router{suffix}"
        # Two networks of four addresses each, from the range for benchmarks (RFC 2544): not in use anywhere.
        base = f"198.18.{os.getpid() // 32 % 256}"
        first = os.getpid() % 32 * 8
        self.server_address, self.router_outside = f"{base}.{first + 1}", f"{base}.{first + 2}"
        self.router_inside, self.client_address = f"{base}.{first + 5}", f"{base}.{first + 6}"
        self._outside, self._inside = f"out{suffix}", f"in{suffix}"

    def create(self) -> None:
        for name in (self.client, self.router):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", self._outside, "type", "veth", "peer", "name", "up0", "netns", self.router)
        _ip("-n", self.router, "link", "add", "down0", "type", "veth", "peer", "name", self._inside)
        _ip("-n", self.router, "link", "set", self._inside, "netns", self.client)
        for namespace, device, address in (
            ((), self._outside, self.server_address),
            (("-n", self.router), "up0", self.router_outside),
            (("-n", self.router), "down0", self.router_inside),
            (("-n", self.client), self._inside, self.client_address),
        ):
            _ip(*namespace, "addr", "add", f"{address}/30", "dev", device)
            _ip(*namespace, "link", "set", device, "up")
        _ip("-n", self.client, "route", "add", "default", "via", self.router_inside)
        _ip("route", "add", f"{self.client_address}/32", "via", self.router_outside)
        self._in_router("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def remove(self) -> None:
        for name in (self.client, self.router):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._outside)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command at the client's end."""
        return ["ip", "netns", "exec", self.client, *command]

    def swallow_packets(self) -> None:
        """From now on no packet arrives on either side, and no error is reported."""
        self._in_router("iptables", "-I", "FORWARD", "-j", "DROP")

    def restore(self) -> None:
        self._in_router("iptables", "-F", "FORWARD")

    def limit_rate(self, kbit_per_s: int) -> None:
        """Slow the way to the server; packets wait in a long queue and are not lost."""
        self._in_router(
            *("tc", "qdisc", "add", "dev", "up0", "root", "tbf"),
            *("rate", f"{kbit_per_s}kbit", "burst", "4kb", "limit", "4mb"),
        )

    def lift_rate(self) -> None:
        self._in_router("tc", "qdisc", "del", "dev", "up0", "root")

    def _in_router(self, *command: str) -> None:
        _check("ip", "netns", "exec", self.router, *command)


def _ip(*words: str) -> None:
    _check("ip", *words)


def _check(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(name="half_open_network")
def half_open_network_fixture() -> Iterator[HalfOpenNetwork]:
    debian(["iproute2", "iptables", "procps"], commands=["ip", "tc", "iptables", "sysctl"])
    network = HalfOpenNetwork()
    try:
        try:
            network.create()
        except subprocess.CalledProcessError as e:
            pytest.skip(f"network namespaces cannot be created here: {e.stderr.decode()}")
        yield network
    finally:
        network.remove()
