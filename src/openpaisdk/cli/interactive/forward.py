"""``pai forward``: make ports of a running task reachable on this machine."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from openpaisdk.cli.parser import add_task_options, command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice
from paiprotocol.errors import PaiError, UsageError

_MAX_PORT = 65_535
# How soon the end of one of several ports is noticed.
_CHECK_INTERVAL_S = 0.5


def forward(argv: list[str]) -> int:
    """``pai forward [options] job [LOCAL:]REMOTE ...``"""
    parser = command_parser(
        "forward",
        "pai forward train_k3v9xq 6006\npai forward train_k3v9xq 8080:80 0:8888\n"
        "pai forward --role worker --index 2 train_k3v9xq 6006",
        "Listens on 127.0.0.1 until you press Ctrl-C, and connects each program that connects there with "
        "the port of the task. Prints a line for each port once it listens. The task may listen on loopback "
        "only. If the server restarts, connections are opened again when they are needed.",
        output=False,
    )
    add_task_options(parser)
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument(
        "ports",
        nargs="+",
        metavar="[LOCAL:]REMOTE",
        help="port of the task, here under the same number or under LOCAL; 0 or nothing before the colon "
        "chooses a free one",
    )
    args = parser.parse(argv)
    ports = [_port_pair(text) for text in args.ports]
    _check_unique([local for local, _ in ports])
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    from openpaisdk.client.port_forward import PortForward
    from openpaisdk.client.task_choice import TaskChoice

    with ExitStack() as stack:
        forwards = []
        for local, remote in ports:
            task = TaskChoice(args.job, args.user, args.role, args.index)
            opened = PortForward(cluster, task, remote, local=local, on_problem=_ProblemPrinter())
            forwards.append(stack.enter_context(opened))
        for opened in forwards:
            sys.stdout.write(f"Forwarding {opened}\n")
        sys.stdout.flush()
        while not any(opened.wait(_CHECK_INTERVAL_S) for opened in forwards):
            pass
    return 0


def _port_pair(text: str) -> tuple[int, int]:
    """Local and remote port."""
    local, colon, remote = text.rpartition(":")
    numbers = (local or "0") if colon else remote, remote
    if not all(number.isascii() and number.isdigit() and int(number[:6]) <= _MAX_PORT for number in numbers):
        raise UsageError(
            f"{text!r} is not a port.", hint="Write REMOTE or LOCAL:REMOTE, as in 8080:80; numbers to 65535."
        )
    if int(remote) == 0:
        raise UsageError("A task has no port 0.", hint="Write the port on which it listens, as in 8080:80.")
    return int(numbers[0]), int(remote)


def _check_unique(ports: list[int]) -> None:
    for port in ports:
        if port and ports.count(port) > 1:
            raise UsageError(
                f"The local port {port} is named twice.", hint="Choose another one: LOCAL:REMOTE."
            )


class _ProblemPrinter:
    """Prints why connections cannot be opened; not again for each of them."""

    def __init__(self) -> None:
        self._printed = ""

    def __call__(self, error: PaiError) -> None:
        if error.message != self._printed:
            self._printed = error.message
            print_notice(f"pai: {error.message}")
