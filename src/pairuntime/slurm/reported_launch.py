"""Launch on a node without a shared file system, after the download of its bundle."""

import os
import signal

from pairuntime.reports.report_client import MAX_DIAGNOSTICS_BYTES, ReportClient
from pairuntime.reports.report_uploader import ignore_signal, print_exception, read_at, run_and_report
from pairuntime.slurm import gang_launcher, node, stale_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# The file with error output.
_DIAGNOSTICS = "diagnostics"


def run(config: "dict[str, Any]", root: "str") -> "int":
    """What the batch script or an srun step runs after the download."""
    client = ReportClient(config)
    folder = os.path.join(root, config["folder"])

    def run_attempt(task_folder: "str", attempt: "str", supervise_attempt: "Callable[[], int]") -> "int":
        try:
            return run_and_report(client, task_folder, attempt, supervise_attempt)
        finally:
            # Here, too: the launcher of a single task does not return.
            _finish(client, root)

    try:
        # The bootstrap of an older server does not lock it.
        node.lock_folder(root)
        # Error output goes to a file: Slurm has no place for it here.
        os.dup2(os.open(os.path.join(root, _DIAGNOSTICS), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        if gang_launcher.COMPONENT in os.environ:
            return gang_launcher.run_task(folder, run_attempt)
        if not config["alone"]:
            # The rendezvous step ends after its tasks, which Slurm signals itself.
            signal.signal(signal.SIGTERM, ignore_signal)
        return gang_launcher.run(folder, run_attempt)
    except Exception:  # noqa: BLE001 - uploaded as diagnostics
        print_exception()
        return 1
    finally:
        _finish(client, root)


def _finish(client: "ReportClient", root: "str") -> "None":
    """Upload diagnostics, if there are any, and remove this launch's folder from the node."""
    path = os.path.join(root, _DIAGNOSTICS)
    try:
        size = os.path.getsize(path)
    except OSError:
        size = 0
    client.send_diagnostics(read_at(path, max(0, size - MAX_DIAGNOSTICS_BYTES), MAX_DIAGNOSTICS_BYTES))
    try:
        stale_folders.remove(root)
    except OSError:
        pass  # the next job of this account tries again
    stale_folders.remove_stale(os.path.dirname(root))
