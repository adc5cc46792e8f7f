"""``pai start-cluster``, ``stop-cluster``, ``cluster-status``: the embedded cluster."""

from __future__ import annotations

import os
import time

from openpaisdk.cli.parser import command_parser, int_at_least
from openpaisdk.config.clusters import EMBEDDED_ALIAS, ClusterEntry, ClusterRegistry
from openpaisdk.config.paths import display_path
from openpaisdk.embedded.ensure_running import find_running
from openpaisdk.embedded.handshake import Handshake
from openpaisdk.embedded.home import find_home
from openpaisdk.output import print_notice, show
from paiprotocol.errors import PaiError, StopNotPersisted, StoreError, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

STOP_TIMEOUT_S = 60.0


def start_cluster(argv: list[str]) -> int:
    """``pai start-cluster``"""
    parser = command_parser("start-cluster", "pai start-cluster", cluster=False)
    parser.add_argument(
        "--port",
        type=int_at_least(0),
        default=0,
        metavar="P",
        help="the port to listen on (default: any free port)",
    )
    args = parser.parse(argv)
    from openpaisdk.embedded.start import start

    before = find_running()
    now = start(notify=print_notice, port=args.port)
    registry = ClusterRegistry.load()
    if registry.find(EMBEDDED_ALIAS) is None:
        registry.put(ClusterEntry.embedded())
    is_new = before is None or before.pid != now.pid
    show(
        _status_fields(now),
        args.output,
        lambda: f"The cluster is {'now' if is_new else 'already'} running at {now.url}",
    )
    return 0


def stop_cluster(argv: list[str]) -> int:
    """``pai stop-cluster [--now]``"""
    parser = command_parser(
        "stop-cluster",
        "pai stop-cluster\npai stop-cluster --now",
        "Running jobs continue, and the next cluster server adopts them. With --now they are stopped first.",
        output=False,
        cluster=False,
    )
    parser.add_argument("--now", action="store_true", help="stop all jobs first")
    args = parser.parse(argv)
    handshake = find_running()
    if handshake is None:
        if args.now:
            return _stop_without_server()
        print_notice("The embedded cluster is not running.")
        return 0
    from openpaisdk.embedded.stop import terminate

    blocker = unwritten = None
    if args.now:
        try:
            unwritten = _stop_jobs()
        except PaiError as e:
            if e.code != StoreError.code:
                raise
            blocker = e
        handshake = find_running() or handshake
    terminate(handshake)
    if unwritten is not None:
        raise _stop_not_persisted(unwritten)
    if blocker is not None:
        raise Unavailable(
            f"The embedded cluster has stopped, but its jobs could not be stopped and continue: {blocker}",
            hint="Stop them with pai stop-cluster --now once the cluster can write again.",
        )
    print_notice("The embedded cluster has stopped." + ("" if args.now else " Running jobs continue."))
    return 0


def _stop_not_persisted(reason: PaiError) -> PaiError:
    return Unavailable(
        f"The embedded cluster has stopped, and its jobs were asked to stop. {reason}",
        hint="The next cluster server records it once it can write again.",
    )


def _stop_without_server() -> int:
    """Jobs of a stopped cluster may still be running: start the cluster to stop them."""
    from openpaisdk.embedded.home import find_home
    from openpaisdk.embedded.start import start
    from openpaisdk.embedded.stop import terminate

    if not os.path.exists(os.path.join(find_home(), "cluster.db")):
        print_notice("The embedded cluster is not running and has never been started.")
        return 0
    try:
        start()
    except PaiError as e:
        raise Unavailable(
            f"The embedded cluster is not running, and its remaining jobs could not be stopped. {e.message}",
            hint=e.hint,
        ) from None
    unwritten = _stop_jobs()
    handshake = find_running()
    if handshake:
        terminate(handshake)
    if unwritten is not None:
        raise _stop_not_persisted(unwritten)
    print_notice("The embedded cluster and its jobs have stopped.")
    return 0


def _stop_jobs() -> PaiError | None:
    """Stop all jobs; returns the error if the cluster could not record the stop."""
    from openpaisdk.connect import open_embedded

    cluster = open_embedded(EMBEDDED_ALIAS)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    requested: set[str] = set()
    unwritten: PaiError | None = None
    while unfinished := _unfinished(cluster):
        for full_name in unfinished:
            if full_name not in requested:
                try:
                    cluster.stop(full_name)
                except PaiError as e:
                    if e.code != StopNotPersisted.code:
                        raise
                    unwritten = e
                requested.add(full_name)
        if unwritten is not None:
            return unwritten
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{len(unfinished)} jobs did not stop within {STOP_TIMEOUT_S:.0f} s; "
                "the cluster was not stopped."
            )
        time.sleep(0.05)
    return None


def _unfinished(cluster: ClusterClient) -> list[str]:
    jobs = cluster.jobs(state="WAITING,RUNNING,STOPPING", limit=1000)
    return [f"{job.user}~{job.name}" for job in jobs]


def cluster_status(argv: list[str]) -> int:
    """``pai cluster-status``"""
    parser = command_parser("cluster-status", "pai cluster-status -o json", cluster=False)
    args = parser.parse(argv)
    home = find_home()
    server = find_running()
    status: dict[str, object] = {"running": server is not None, "home": home}
    if server is None:
        show(
            status,
            args.output,
            lambda: f"The embedded cluster is not running. Its files: {display_path(home)}",
        )
        return 0
    status.update(_status_fields(server))
    from openpaisdk.client import ClusterClient
    from openpaisdk.connect import endpoint_of

    cluster = ClusterClient(EMBEDDED_ALIAS, endpoint_of(server), is_embedded=True)
    states = {state: cluster.count_jobs(state=state) for state in ("RUNNING", "WAITING")}
    status["jobs"] = states

    def render() -> str:
        return "\n".join(
            [
                f"The embedded cluster is running at {server.url}",
                f"  version  {server.version}",
                f"  process  {server.pid}",
                f"  files    {display_path(home)}",
                f"  jobs     {states['RUNNING']} running, {states['WAITING']} waiting",
            ]
        )

    show(status, args.output, render)
    return 0


def _status_fields(server: Handshake) -> dict[str, object]:
    return {"url": server.url, "pid": server.pid, "version": server.version, "user": server.user}
