"""A real Slurm on this machine: slurmctld and several slurmd, one per node, with fake GPU devices."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pairuntime.supervisor import process_tree
from support.external_services import debian, missing
from support.ports import free_ports

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "slurm-wlm-basic-plugins")
COMMANDS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sdiag", "munged")
NODE_COUNT = 3
# More than this machine has: most tasks only sleep.
CPUS = 32
MEMORY_MB = 16000
GPUS = 4
_READY_S = 90.0
_numbers = itertools.count()

_CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={d}/run/munge.socket
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd-%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd-%n.log
{held}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
ReturnToService=1
GresTypes=gpu
SlurmdParameters=config_overrides
SlurmdTimeout=5
SlurmctldTimeout=30
InactiveLimit=0
KillWait=3
MinJobAge=300
MaxArraySize=1001
MessageTimeout={message_timeout}
TCPTimeout=1
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=2
PartitionName=low Nodes={names} MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=short Nodes={names} MaxTime=1 State=UP PriorityTier=2
"""
_CGROUPS = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup"
_NO_CGROUPS = "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none"
_CGROUP_CONF = """CgroupAutomount=no
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainDevices=yes
"""


def eventually(
    look: Callable[[], object], what: str, deadline_s: float = _READY_S, interval_s: float = 0.05
) -> None:
    ends = time.monotonic() + deadline_s
    while not look():
        assert time.monotonic() < ends, f"timed out waiting for {what}"
        time.sleep(interval_s)


# Seconds after which a command gives a dead controller up: so many that a busy machine does not look like
# one, and so few that a test need not wait.
_MESSAGE_TIMEOUT_S = 20
_IMPATIENT_TIMEOUT_S = 3


class RealSlurm:
    """Started once for all tests; a test restores what it breaks.

    Nothing is shared with another one that runs at the same time: nodes have names of their own, as their
    cgroups are called after them, and munged has a key and a socket of its own.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, view: Sequence[str] = ()):
        """``settings``: further lines of slurm.conf, by name. ``view``: a shell script and its parameters, by
        which each node mounts what it sees otherwise than we do."""
        self._view = view
        if os.geteuid() != 0:
            missing("root, to run slurmctld")
        debian(PACKAGES, commands=COMMANDS)
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self.impatient_conf = folder / "impatient.conf"
        prefix = f"p{os.getpid()}-{next(_numbers)}-n"
        self.nodes = [f"{prefix}{number + 1}" for number in range(NODE_COUNT)]
        self._ports = iter(free_ports(NODE_COUNT + 1))
        self._munged: subprocess.Popen[bytes] | None = None
        for name in ("state", "spool", "run", "log", "dev"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.cgroups = Path("/sys/fs/cgroup/memory").is_dir() and Path("/sys/fs/cgroup/freezer").is_dir()
        nodes = "\n".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={{}} CPUs={CPUS} "
            f"RealMemory={MEMORY_MB} Gres=gpu:{GPUS}".format(next(self._ports))
            for name in self.nodes
        )
        held = _CGROUPS if self.cgroups else _NO_CGROUPS
        more = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        values = {
            "d": folder,
            "port": next(self._ports),
            "held": held,
            "nodes": nodes,
            "names": ",".join(self.nodes),
        }
        for conf, timeout_s in (
            (self.conf, _MESSAGE_TIMEOUT_S),
            (self.impatient_conf, _IMPATIENT_TIMEOUT_S),
        ):
            conf.write_text(_CONF.format(**values, message_timeout=timeout_s) + more)
        (folder / "cgroup.conf").write_text(_CGROUP_CONF)
        devices = f"{folder}/dev/gpu[0-{GPUS - 1}]"
        (folder / "gres.conf").write_text(f"NodeName={values['names']} Name=gpu File={devices}\n")
        for number in range(GPUS):
            # The devices do not exist; the tests only check whether a task may open them.
            os.mknod(folder / f"dev/gpu{number}", 0o20666, os.makedev(195, number))

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}

    def start(self) -> None:
        self.start_munge()
        self.start_controller()
        with ThreadPoolExecutor(NODE_COUNT) as pool:
            list(pool.map(self.start_node, self.nodes))
        self.wait_idle()

    def start_munge(self) -> None:
        if self._munged is not None:
            return
        run = self.folder / "run"
        key = run / "munge.key"
        if not key.exists():
            key.touch(0o600)
            key.write_bytes(os.urandom(128))
        self._munged = subprocess.Popen(
            [
                # By force: in a temporary folder that is closed to others it would not start.
                *("/usr/sbin/munged", "--force", "--foreground"),
                *(f"--socket={run}/munge.socket", f"--key-file={key}"),
                *(f"--pid-file={run}/munged.pid", f"--seed-file={run}/munged.seed"),
                f"--log-file={self.folder}/log/munged.log",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: _answers("munge", "-n", f"--socket={run}/munge.socket"), "munged")

    def _daemon(self, *words: str) -> None:
        with (self.folder / "log" / "starting.log").open("ab") as log:
            subprocess.run(words, env=self.environment, stdout=log, stderr=log, check=True, timeout=90)

    def start_controller(self, *words: str) -> None:
        self._daemon("slurmctld", *words)
        eventually(lambda: "UP" in self.ask("scontrol", "ping"), "slurmctld")

    def start_node(self, name: str) -> None:
        words = ["slurmd", "-N", name]
        if self._view:
            script, *parameters = self._view
            taken = f'shift {len(parameters)}; exec "$@"'
            words = ["unshare", "--mount", "sh", "-ec", f"{script}; {taken}", "view", *parameters, *words]
        self._daemon(*words)

    def kill_controller(self, signum: int = signal.SIGKILL) -> None:
        self._end(self.folder / "run" / "slurmctld.pid", signum)

    @contextlib.contextmanager
    def paused_controller(self) -> Iterator[None]:
        """slurmctld accepts connections and says nothing."""
        pid = int((self.folder / "run" / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill_munge(self) -> None:
        """`start_munge` starts it again, with the same key."""
        if self._munged is not None:
            self._munged.kill()
            self._munged.wait(90)
            self._munged = None

    def kill_slurmd(self, name: str) -> None:
        """Kill the node's daemon alone: its tasks go on."""
        self._end(self.folder / "run" / f"slurmd-{name}.pid", signal.SIGKILL)

    def resume(self, name: str) -> None:
        """Bring a node back that was drained or given up."""

        def is_usable() -> bool:
            said = self.ask("sinfo", "-h", "-n", name, "-o", "%T")
            if "drain" in said or "down" in said:
                self.ask("scontrol", "update", f"nodename={name}", "state=resume")
            return said.strip().split("\n")[0] in ("idle", "mixed", "allocated", "completing")

        eventually(is_usable, f"{name} to be usable", interval_s=0.2)

    def kill_node(self, name: str) -> None:
        """Kill the node's slurmd and all processes of its jobs, like a power failure.

        Slurm is notified: it would notice by itself after half a minute, when its messages have timed out.
        With `ReturnToService=2` a response that came just before, to the start of a job, would bring the node
        back.
        """
        self.kill_slurmd(name)
        # Stopped first: none may react to the end of another one, or start one that is missed.
        stopped: set[int] = set()
        while new := set(self.processes(name)) - stopped:
            for pid in new:
                process_tree.send(pid, signal.SIGSTOP)
            stopped |= new
        for pid in stopped:
            process_tree.send(pid, signal.SIGKILL)
        eventually(lambda: not self.processes(name), f"the end of all processes of {name}")
        self.ask("scontrol", "update", f"nodename={name}", "state=down", "reason=killed")

    def processes(self, name: str) -> list[int]:
        """Those of the node's jobs: slurmstepd, and all that it and the processes below it started."""
        found = set()
        for pid in _processes("slurmstepd", conf=str(self.conf)):
            if f"{self.folder}/log/slurmd-{name}.log" in _open_files(pid):
                found |= {pid, *process_tree.descendants(pid)}
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                with contextlib.suppress(OSError):
                    # Also those whose slurmstepd has ended.
                    if f"/slurm_{name}/" in (path / "cgroup").read_text():
                        found.add(int(path.name))
        return [pid for pid in found if not _zombie(pid)]

    def _end(self, file: Path, signum: int) -> None:
        try:
            pid = int(file.read_text())
        except (FileNotFoundError, ValueError):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
        eventually(lambda: not Path(f"/proc/{pid}").exists() or _zombie(pid), f"the end of {file.stem}")
        file.unlink(missing_ok=True)

    def wait_idle(self) -> None:
        def idle() -> bool:
            said = self.ask("sinfo", "-h", "-p", "main", "-N", "-o", "%T")
            if "drain" in said or "down" in said:
                # A killed process may have left a node in a bad state.
                self.ask("scontrol", "update", f"nodename={','.join(self.nodes)}", "state=resume")
            return said.split() == ["idle"] * NODE_COUNT

        eventually(idle, "all nodes to be idle", 180, interval_s=0.2)

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=90, check=False
        )
        return done.stdout

    def jobs(self) -> list[str]:
        """Unfinished jobs."""
        return self.ask("squeue", "-h", "-o", "%i").split()

    def close(self) -> None:
        self.ask("scancel", "-f", "-u", "root")
        for name in self.nodes:
            self._end(self.folder / "run" / f"slurmd-{name}.pid", signal.SIGTERM)
        self.kill_controller(signal.SIGTERM)
        for pid in _processes("slurmstepd", conf=str(self.conf)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._munged is not None:
            self._munged.terminate()
            self._munged.wait(90)
        self._remove_cgroups()

    def _remove_cgroups(self) -> None:
        for name in self.nodes:
            for group in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
                for path, _, _ in os.walk(group, topdown=False):
                    # A killed process may still be on its way out.
                    with contextlib.suppress(OSError):
                        Path(path).rmdir()


def _answers(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, timeout=90, check=False).returncode == 0


def _zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def _processes(name: str, *, conf: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().decode(errors="replace")
                if name not in words:
                    continue
                known = (path / "environ").read_bytes().decode(errors="replace").split("\0")
                if f"SLURM_CONF={conf}" in known:
                    found.append(int(path.name))
    return found


def _open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(path.readlink()))
    return found


@contextlib.contextmanager
def open_folder(prefix: str) -> Iterator[Path]:
    """A folder that every account can read. Short: Slurm creates sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(name="slurm", scope="session")
def slurm_fixture() -> Iterator[RealSlurm]:
    """One for the tests of a worker, and for what they start."""
    with running_slurm() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(made.conf))
        yield made


@contextlib.contextmanager
def running_slurm(settings: Mapping[str, str] | None = None, view: Sequence[str] = ()) -> Iterator[RealSlurm]:
    """In a temporary folder of its own."""
    with open_folder("slurm-") as folder:
        made = RealSlurm(folder, settings, view)
        try:
            made.start()
            yield made
        finally:
            made.close()
