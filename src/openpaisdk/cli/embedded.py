"""``pai start-cluster``, ``stop-cluster``, ``cluster-status``: the cluster on this machine."""

from __future__ import annotations

import os
import time

from openpaisdk.cli.parser import command_parser, whole_number
from openpaisdk.config.clusters import EMBEDDED_ALIAS, ClusterEntry, ClusterRegistry
from openpaisdk.config.paths import display_path
from openpaisdk.embedded.ensure_running import find_running
from openpaisdk.embedded.handshake import Handshake
from openpaisdk.embedded.home import find_home
from openpaisdk.errors import PaiError, StopNotPersisted, StoreError, Unavailable
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

STOP_TIMEOUT_S = 60.0


def start_cluster(argv: list[str]) -> int:
    """``pai start-cluster``"""
    parser = command_parser("start-cluster", "pai start-cluster", cluster=False)
    parser.add_argument(
        "--port", type=whole_number(0), default=0, metavar="P", help="where to listen (any free port)"
    )
    args = parser.parse(argv)
    from openpaisdk.embedded.start import start

    before = find_running()
    now = start(tell=print_notice, port=args.port)
    book = ClusterRegistry.load()
    if book.find(EMBEDDED_ALIAS) is None:
        book.put(ClusterEntry.embedded())
    fresh = before is None or before.pid != now.pid
    show(
        _told(now), args.output, lambda: f"The cluster {'runs now' if fresh else 'already runs'} at {now.url}"
    )
    return 0


def stop_cluster(argv: list[str]) -> int:
    """``pai stop-cluster [--now]``"""
    parser = command_parser(
        "stop-cluster",
        "pai stop-cluster\npai stop-cluster --now",
        "Jobs that run go on, and the next cluster takes them over. With --now they are stopped first.",
        output=False,
        cluster=False,
    )
    parser.add_argument("--now", action="store_true", help="stop every job first")
    args = parser.parse(argv)
    found = find_running()
    if found is None:
        if args.now:
            return _stop_without_server()
        print_notice("The cluster on this machine does not run.")
        return 0
    from openpaisdk.embedded.stop import terminate

    hindrance = unwritten = None
    if args.now:
        try:
            unwritten = _stop_jobs()
        except PaiError as e:
            if e.code != StoreError.code:
                raise
            hindrance = e
        found = find_running() or found
    terminate(found)
    if unwritten is not None:
        raise _stopped_unwritten(unwritten)
    if hindrance is not None:
        raise Unavailable(
            f"The cluster on this machine has stopped, but its jobs could not be and go on: {hindrance}",
            hint="They end with: pai stop-cluster --now, once it can write again.",
        )
    print_notice("The cluster on this machine has stopped." + ("" if args.now else " Running jobs go on."))
    return 0


def _stopped_unwritten(why: PaiError) -> PaiError:
    return Unavailable(
        f"The cluster on this machine has stopped, and its jobs were told to end. {why}",
        hint="The next cluster writes it down, once it can write again.",
    )


def _stop_without_server() -> int:
    """The jobs of a cluster that was stopped may still run: it is started to end them."""
    from openpaisdk.embedded.home import find_home
    from openpaisdk.embedded.start import start
    from openpaisdk.embedded.stop import terminate

    if not os.path.exists(os.path.join(find_home(), "cluster.db")):
        print_notice("The cluster on this machine does not run, and never has.")
        return 0
    try:
        start()
    except PaiError as e:
        raise Unavailable(
            f"The cluster on this machine does not run, and jobs it left could not be ended. {e.message}",
            hint=e.hint,
        ) from None
    unwritten = _stop_jobs()
    found = find_running()
    if found:
        terminate(found)
    if unwritten is not None:
        raise _stopped_unwritten(unwritten)
    print_notice("The cluster on this machine has stopped, and so have its jobs.")
    return 0


def _stop_jobs() -> PaiError | None:
    """Why it could not be written down that they end, where that is so."""
    from openpaisdk.connect import open_embedded

    cluster = open_embedded(EMBEDDED_ALIAS)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    asked: set[str] = set()
    unwritten: PaiError | None = None
    while left := _unfinished(cluster):
        for whole in left:
            if whole not in asked:
                try:
                    cluster.stop(whole)
                except PaiError as e:
                    if e.code != StopNotPersisted.code:
                        raise
                    unwritten = e
                asked.add(whole)
        if unwritten is not None:
            return unwritten
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{len(left)} jobs have not stopped within {STOP_TIMEOUT_S:.0f} s, so the cluster keeps running."
            )
        time.sleep(0.05)
    return None


def _unfinished(cluster: ClusterClient) -> list[str]:
    found = cluster.jobs(state="WAITING,RUNNING,STOPPING", limit=1000)
    return [f"{job.user}~{job.name}" for job in found]


def cluster_status(argv: list[str]) -> int:
    """``pai cluster-status``"""
    parser = command_parser("cluster-status", "pai cluster-status -o json", cluster=False)
    args = parser.parse(argv)
    home = find_home()
    found = find_running()
    told: dict[str, object] = {"running": found is not None, "home": home}
    if found is None:
        show(
            told,
            args.output,
            lambda: f"The cluster on this machine does not run. Its files: {display_path(home)}",
        )
        return 0
    told.update(_told(found))
    from openpaisdk.client import ClusterClient
    from openpaisdk.connect import endpoint_of

    cluster = ClusterClient(EMBEDDED_ALIAS, endpoint_of(found), is_embedded=True)
    states = {state: cluster.count_jobs(state=state) for state in ("RUNNING", "WAITING")}
    told["jobs"] = states

    def people() -> str:
        return "\n".join(
            [
                f"The cluster on this machine runs at {found.url}",
                f"  version  {found.version}",
                f"  process  {found.pid}",
                f"  files    {display_path(home)}",
                f"  jobs     {states['RUNNING']} running, {states['WAITING']} waiting",
            ]
        )

    show(told, args.output, people)
    return 0


def _told(found: Handshake) -> dict[str, object]:
    return {"url": found.url, "pid": found.pid, "version": found.version, "user": found.user}
