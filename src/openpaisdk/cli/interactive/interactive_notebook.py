"""``pai notebook-job --interactive``: a Jupyter server in a job, opened in the browser here."""

from __future__ import annotations

import re

from openpaisdk.config.clusters import alias_option
from openpaisdk.jobs.command_job import resolve_image
from openpaisdk.jobs.notebook_link import (
    PORT_LABEL,
    READY,
    TOKEN_VARIABLE,
    NotebookServer,
    ask_token,
    runs_on_this_machine,
)
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client import ClusterClient
    from openpaisdk.client.port_forward import PortForward
    from openpaisdk.config.clusters import ClusterRegistry
    from openpaisdk.jobs.job_options import JobOptions

EMBEDDED_TOKEN = "abcd"
"""Documented by OpenPAI. Only where the machine has one user: all others could use it."""
# Of `pairuntime.task.python_packages`: that takes minutes, in which nothing else is to be seen.
_INSTALLATION = re.compile(rb"^Installing [^\n]+(?=\n)", re.MULTILINE)
_CHECK_INTERVAL_S = 0.5


class InteractiveNotebook:
    """The Jupyter server of one job: its token, and the link to the notebook."""

    def __init__(self, options: JobOptions, registry: ClusterRegistry, args: argparse.Namespace):
        entry = registry.resolve(args.cluster_alias)
        self._args = args
        self._may_be_local = entry.shares_machine and not resolve_image(options, registry.defaults)
        options.ports.setdefault(PORT_LABEL, 1)
        self._token = args.token or registry.defaults.text("notebook-token")
        # Another virtual cluster may run its tasks on nodes that other users share.
        vc = options.virtual_cluster or registry.defaults.text("virtual-cluster")
        if not self._token and entry.is_embedded and vc in ("", "default"):
            self._token = EMBEDDED_TOKEN
            options.env[TOKEN_VARIABLE] = EMBEDDED_TOKEN  # known to everybody: nothing to hide in logs
        else:
            from secrets import token_urlsafe

            self._token = self._token or token_urlsafe(16)
            options.secrets[TOKEN_VARIABLE] = self._token

    def open(self, cluster: ClusterClient, name: str, result: dict[str, object]) -> int:
        """Wait until the server of the submitted job answers, and open the notebook."""
        option = alias_option(cluster.alias)
        print_notice(f"Job {name} on {cluster.alias}. Stop it with: pai stop-job {option}{name}")
        if self._args.no_wait:
            show(result, self._args.output, lambda: name)
            return 0
        waited = wait_for_server(cluster, name)
        if isinstance(waited, int):
            return waited
        server = NotebookServer(*waited, self._token)
        if self._may_be_local and runs_on_this_machine(cluster, name):
            self._show(server, server.port, result)
            return 0
        from openpaisdk.client.port_forward import PortForward
        from openpaisdk.client.task_choice import TaskChoice

        with PortForward(cluster, TaskChoice(name), server.port) as forward:
            self._show(server, forward.local_port, result)
            print_notice(
                "The link works until you press Ctrl-C; the job goes on. Make it work again with: "
                f"pai forward {option}{name} {forward.local_port}:{server.port}, or get another one with: "
                f"pai connect-job {option}{name}"
            )
            while not forward.wait(_CHECK_INTERVAL_S):
                pass
        return 0

    def _show(self, server: NotebookServer, port: int, result: dict[str, object]) -> None:
        from openpaisdk.output.browser import has_display, open_page

        link = server.link(port)
        result["link"] = link
        show(result, self._args.output, lambda: link)
        if not self._args.no_browser and has_display() and not open_page(link):
            print_notice("The web browser could not be opened: open the link yourself.")


def wait_for_server(cluster: ClusterClient, name: str, user: str = "") -> tuple[int, str] | int:
    """Port and page when the server answers; the exit status if the job ends before."""
    from openpaisdk.cli.jobs.follow_output import FollowPrinter, report_interrupt, report_outcome
    from openpaisdk.client.follow import follow
    from openpaisdk.client.follow_stream import FollowRequest

    request = FollowRequest(name, user)
    printer = FollowPrinter(request)
    log = b""
    try:
        for frame in follow(cluster, request):
            if frame.kind != "log":
                printer.print_frame(frame)
                continue
            log += frame.data
            if ready := READY.search(log):
                return int(ready[1]), ready[2].decode()
            for installation in _INSTALLATION.findall(log):
                print_notice(installation.decode(errors="replace"))
            log = log[log.rfind(b"\n") + 1 :]
    except KeyboardInterrupt:
        report_interrupt(cluster, request)
        raise
    return report_outcome(cluster, request, printer.final, shown=())


class Reconnection:
    """A new link to a running interactive notebook, valid until the block is left."""

    def __init__(self, cluster: ClusterClient, name: str, user: str, server: NotebookServer):
        server.token = server.token or ask_token(cluster, name, user)
        self._forward: PortForward | None = None
        port = server.port
        # A task on another machine, or in a container, has a loopback of its own.
        is_here = cluster.is_embedded and runs_on_this_machine(cluster, name, user) and _listens_here(port)
        if not is_here:
            from openpaisdk.client.port_forward import PortForward
            from openpaisdk.client.task_choice import TaskChoice

            self._forward = PortForward(cluster, TaskChoice(name, user), port)
            port = self._forward.local_port
        self.link = server.link(port)

    def __enter__(self) -> Reconnection:
        return self

    def __exit__(self, *_: object) -> None:
        if self._forward is not None:
            self._forward.close()


def _listens_here(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True
