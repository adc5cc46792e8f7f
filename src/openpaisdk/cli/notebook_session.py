"""``pai notebook-job --interactive``: a Jupyter server in a job, opened in the browser here."""

from __future__ import annotations

import re

from openpaisdk.config.clusters import alias_option
from openpaisdk.jobs.command_job import resolve_image
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterRegistry
    from openpaisdk.jobs.command_job import JobOptions

TOKEN_VARIABLE = "JUPYTER_TOKEN"
EMBEDDED_TOKEN = "abcd"
"""Documented by OpenPAI. Only where the machine has one user: all others could use it."""
_READY = re.compile(rb"^Jupyter answers at port (\d+): ([^\n]+)\n", re.MULTILINE)
# Of `pairuntime.task.python_packages`: that takes minutes, in which nothing else is to be seen.
_INSTALLATION = re.compile(rb"^Installing [^\n]+(?=\n)", re.MULTILINE)
_CHECK_INTERVAL_S = 0.5


class NotebookSession:
    """The Jupyter server of one job: its token, and the link to the notebook."""

    def __init__(self, options: JobOptions, registry: ClusterRegistry, args: argparse.Namespace):
        entry = registry.resolve(args.cluster_alias)
        self._args = args
        self._may_be_local = entry.shares_machine and not resolve_image(options, registry.defaults)
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
        found = self._wait(cluster, name)
        if isinstance(found, int):
            return found
        port, page = found
        if self._may_be_local and _runs_here(cluster, name):
            self._show(port, page, result)
            return 0
        from openpaisdk.client.port_forward import PortForward
        from openpaisdk.client.task_choice import TaskChoice

        with PortForward(cluster, TaskChoice(name), port) as forward:
            self._show(forward.local_port, page, result)
            print_notice(
                "The link works until you press Ctrl-C; the job goes on. Make it work again with: "
                f"pai forward {option}{name} {forward.local_port}:{port}"
            )
            while not forward.wait(_CHECK_INTERVAL_S):
                pass
        return 0

    @staticmethod
    def _wait(cluster: ClusterClient, name: str) -> tuple[int, str] | int:
        """Port and page when the server answers; the exit status if the job ends before."""
        from openpaisdk.cli.follow_output import FollowPrinter, report_interrupt, report_outcome
        from openpaisdk.client.follow import follow
        from openpaisdk.client.follow_stream import FollowRequest

        request = FollowRequest(name)
        printer = FollowPrinter(request)
        log = b""
        try:
            for frame in follow(cluster, request):
                if frame.kind != "log":
                    printer.print_frame(frame)
                    continue
                log += frame.data
                if ready := _READY.search(log):
                    return int(ready[1]), ready[2].decode()
                for installation in _INSTALLATION.findall(log):
                    print_notice(installation.decode(errors="replace"))
                log = log[log.rfind(b"\n") + 1 :]
        except KeyboardInterrupt:
            report_interrupt(cluster, request)
            raise
        return report_outcome(cluster, request, printer.final, shown=())

    def _show(self, port: int, page: str, result: dict[str, object]) -> None:
        from urllib.parse import quote

        from openpaisdk.output.browser import has_display, open_page

        link = f"http://127.0.0.1:{port}/{quote(page)}?token={quote(self._token, safe='')}"
        result["link"] = link
        show(result, self._args.output, lambda: link)
        if not self._args.no_browser and has_display() and not open_page(link):
            print_notice("The web browser could not be opened: open the link yourself.")


def _runs_here(cluster: ClusterClient, name: str) -> bool:
    """Whether the loopback of the task is that of this machine: the cluster may run its tasks on others."""
    from socket import gethostname

    return any(task.raw.get("containerNodeName") == gethostname() for task in cluster.job(name).tasks)
