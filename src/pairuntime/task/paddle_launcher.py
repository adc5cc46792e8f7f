"""Launcher of PaddleCloud's roles: ``pai-runtime paddle start_trainer v2`` and the like.

It copies the job's package from the storage into the working folder, finds the other tasks of the job, sets
the variables of Paddle's programs, runs one, and stores the files that it has written in the package.
"""

import os
import posixpath
import re
import shutil
import signal
import subprocess
import sys
import threading
from urllib.parse import quote

from pairuntime.task import hdfs_cli, hdfs_paths
from pairuntime.task.upload_outputs import files_below
from pairuntime.task.webhdfs import Storage, WebHdfsError, is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

MASTER, PSERVER, TRAINER = "master", "pserver", "trainer"
STORED_PACKAGE = "PAI_PADDLE_PACKAGE"
"""Variable: path of the package on the cluster's storage."""
PACKAGE_COPY = "PAI_PADDLE_PACKAGE_COPY"
"""Variable: path in the cloud, `/pfs/…`, of the job's own copy of the package; files come from there."""

_USAGE = (
    "usage: pai-runtime paddle start_pserver | start_trainer v1|v2 | start_new_pserver | start_new_trainer | "
    "start_master | start_fluid\n"
)
_PORT_LABEL = "paddle"
_POLL_INTERVAL_S = 1.0
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_MASTER_PROGRAM, _PSERVER_PROGRAM = "/usr/bin/master", "/usr/bin/pserver"
_MASTER_PORT, _ETCD_PORT = 8080, 2379
# A program whose text has this word knows that it may be a parameter server.
_ROLE_VARIABLE = b"TRAINING_ROLE"
_MAX_SEARCHED_BYTES = 1 << 20
_NOT_INSTALLED = 127
_SIGNAL_BASE = 128


class LaunchError(Exception):
    """Why a task cannot run, for its user; ``exit_code`` is that of the task."""

    def __init__(self, message: "str", exit_code: "int" = 1):
        super().__init__(message)
        self.exit_code = exit_code


class Peer:
    """Another task of the job: where it listens."""

    def __init__(self, ip: "str", port: "str", is_running: "bool" = True, has_ended: "bool" = False):
        self.ip = ip
        self.port = port
        self.is_running = is_running
        self.has_ended = has_ended

    @property
    def endpoint(self) -> "str":
        return "%s:%s" % (self.ip, self.port)


def main(argv: "list[str]") -> "int":
    start = _COMMANDS.get(argv[0]) if argv else None
    if start is None:
        sys.stderr.write(_USAGE)
        return 2
    task = Task()
    signal.signal(signal.SIGTERM, lambda number, frame: task.stop())
    try:
        code = start(task, argv[1:])
    except LaunchError as error:
        sys.stderr.write("%s\n" % error)
        code = error.exit_code
    except (WebHdfsError, hdfs_paths.HdfsCommandError) as error:
        sys.stderr.write("The package of the job could not be copied: %s\n" % error)
        code = 1
    return task.store_changes(code)


# -- commands ----------------------------------------------------------------------------------------------


def _start_pserver(task: "Task", options: "list[str]") -> "int":
    task.prepare("PSERVER", PSERVER)
    if not task.has_paddle("pserver"):
        return _run_entry_as_pserver(task)
    return task.run(
        [
            *("paddle", "pserver", "--use_gpu=0"),
            *task.flags("port", "ports_num", "ports_num_for_sparse", "nics"),
            "--comment=paddle_process_k8s",
            *task.flags("num_gradient_servers"),
        ]
    )


def _start_new_pserver(task: "Task", options: "list[str]") -> "int":
    task.prepare("PSERVER", PSERVER)
    task.watch_trainers()
    if not os.path.exists(_PSERVER_PROGRAM):
        return _run_entry_as_pserver(task)
    etcd = "http://%s:%d" % (task.wait_for(MASTER, 1)[0].ip, _ETCD_PORT)
    port, number = task.variables["PADDLE_INIT_PORT"], task.variables["PSERVERS"]
    return task.run(
        [
            *(_PSERVER_PROGRAM, "-port=" + port, "-num-pservers=" + number),
            *("-log-level=debug", "-etcd-endpoint=" + etcd),
        ]
    )


def _run_entry_as_pserver(task: "Task") -> "int":
    """Run the job's entry as a parameter server: since `fluid` one program is both trainer and server."""
    entry = task.variables.get("ENTRY", "")
    if not entry.strip():
        raise _no_paddle("pserver")
    if not task.mentions_roles():
        print("The program of this job does not use parameter servers: this one only waits.")
        return task.wait_until_stopped()
    print("There is no `paddle pserver` here: the parameter server runs the entry of the job.")
    return task.run(["sh", "-c", entry])


def _start_trainer(task: "Task", options: "list[str]") -> "int":
    if options not in (["v1"], ["v2"]):
        sys.stderr.write(_USAGE)
        return 2
    version = options[0]
    task.prepare("TRAINER", TRAINER)
    task.announce_trainer(version)
    if version == "v2":
        return _run_entry(task)
    if not task.split_train_list():
        return 0
    if not task.has_paddle("train"):
        raise _no_paddle("train")
    return task.finish(
        task.run(
            [
                *("paddle", "train"),
                *task.flags("port", "nics", "ports_num", "ports_num_for_sparse"),
                *task.flags("num_passes", "trainer_count"),
                *("--saving_period=1", "--log_period=20", "--local=0", "--rdma_tcp=tcp"),
                "--config=" + task.variables["TOPOLOGY"],
                *task.flags("use_gpu", "trainer_id"),
                "--save_dir=" + task.variables.get("OUTPUT", "output"),
                *task.flags("pservers", "num_gradient_servers"),
            ]
        )
    )


def _run_entry(task: "Task") -> "int":
    """Run the entry of a trainer, which is `paddle train` unless the user names another."""
    entry = task.variables["ENTRY"]
    if entry.split()[:2] == ["paddle", "train"] and not task.has_paddle("train"):
        raise _no_paddle("train")
    return task.finish(task.run(["sh", "-c", entry]))


def _no_paddle(command: "str") -> "LaunchError":
    return LaunchError(
        "There is no program here with the command `paddle %s`, which Paddle had before version 2: name an "
        "image that has it, or the command of your program with -entry." % command,
        _NOT_INSTALLED,
    )


def _start_new_trainer(task: "Task", options: "list[str]") -> "int":
    if task.count(PSERVER):
        task.wait_for(PSERVER, task.count(PSERVER))
    master = task.wait_for(MASTER, 1)[0]
    task.variables["MASTER_IP"] = task.variables["ETCD_IP"] = master.ip
    task.prepare("TRAINER", TRAINER)
    task.announce_trainer("v2")
    return _run_entry(task)


def _start_master(task: "Task", options: "list[str]") -> "int":
    task.watch_trainers()
    if not os.path.exists(_MASTER_PROGRAM):
        print("There is no program %s here: the master only waits." % _MASTER_PROGRAM)
        return task.wait_until_stopped()
    return task.run(
        [
            *(_MASTER_PROGRAM, "-port=%d" % _MASTER_PORT, "-chunk-per-task=1", "-task-timout-dur=16s"),
            "-endpoints=http://127.0.0.1:%d" % _ETCD_PORT,
        ]
    )


def _start_fluid(task: "Task", options: "list[str]") -> "int":
    is_server = os.environ.get("PADDLE_TRAINING_ROLE") == "PSERVER"
    task.prepare("PSERVER" if is_server else "TRAINER", PSERVER if is_server else TRAINER)
    return task.finish(task.run(["sh", "-c", task.variables["ENTRY"]]))


_COMMANDS = {
    "start_pserver": _start_pserver,
    "start_trainer": _start_trainer,
    "start_new_pserver": _start_new_pserver,
    "start_new_trainer": _start_new_trainer,
    "start_master": _start_master,
    "start_fluid": _start_fluid,
}


# -- a task ------------------------------------------------------------------------------------------------


class Task:
    """This task: its variables, its copy of the package, and the program that it runs."""

    def __init__(self) -> "None":
        self.variables = dict(os.environ)
        self._work = self.variables.get("PAI_WORK_DIR") or os.getcwd()
        self._stored = self.variables.get(STORED_PACKAGE, "")
        self._package = ""
        self._has_copy = False
        self._server = None  # type: Storage | None
        self._copied = {}  # type: dict[str, tuple[int, int]]
        self._program = None  # type: subprocess.Popen[bytes] | None
        self._is_stopped = threading.Event()
        self._is_done = False

    @property
    def index(self) -> "int":
        return int(self.variables.get("PAI_TASK_INDEX", "0"))

    def count(self, role: "str") -> "int":
        """How many tasks of a role the job has."""
        name = {PSERVER: "PSERVERS", TRAINER: "TRAINERS"}.get(role, "")
        return int(self.variables.get(name) or 0)

    def prepare(self, training_role: "str", role: "str") -> "None":
        """Copy the package, go there, and set the variables of a program in this role."""
        self._copy_package()
        pservers = self._known_peers(PSERVER)
        trainers = self._known_peers(TRAINER)
        own = self._own_port()
        port = own if role == PSERVER else pservers[0].port if pservers else own
        ip = self.variables.get("PAI_CURRENT_CONTAINER_IP", "")
        previous = self.variables.get("PYTHONPATH", "")
        self.variables.update(
            {
                "TRAINER_PACKAGE": self._package,
                "PYTHONPATH": self._package + (":" + previous if previous else ""),
                "PADDLE_TRAINING_ROLE": training_role,
                "TRAINING_ROLE": training_role,
                "PADDLE_TRAINERS": self.variables.get("TRAINERS", ""),
                "PADDLE_TRAINERS_NUM": self.variables.get("TRAINERS", ""),
                "PADDLE_PSERVERS": self.variables.get("PSERVERS", ""),
                "PADDLE_INIT_PORT": port,
                "PADDLE_INIT_PSERVERS": ",".join(sorted(peer.ip for peer in pservers)),
                "PADDLE_PSERVER_IPS": ",".join(peer.ip for peer in pservers),
                "PADDLE_TRAINER_IPS": ",".join(peer.ip for peer in trainers),
                "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(peer.endpoint for peer in pservers),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(peer.endpoint for peer in trainers),
                "PADDLE_CURRENT_ENDPOINT": "%s:%s" % (ip, own),
                "PADDLE_PORT": own,
                "POD_IP": ip,
            }
        )
        if role == TRAINER:
            self.variables["PADDLE_INIT_TRAINER_ID"] = self.variables["PADDLE_TRAINER_ID"] = str(self.index)
            self._write("trainer_id", str(self.index))
            self._write("trainer_count", self.variables.get("PADDLE_INIT_NUM_GRADIENT_SERVERS", ""))
        os.chdir(self._package)

    def has_paddle(self, command: "str") -> "bool":
        """Whether there is a program `paddle` with this command.

        That of later versions is a script without it, which then prints its version and succeeds.
        """
        program = shutil.which("paddle", path=self.variables.get("PATH"))
        if program is None:
            return False
        try:
            with open(program, "rb") as f:
                text = f.read(_MAX_SEARCHED_BYTES)
        except OSError:
            return True  # it can be run, but not be read
        return not text.startswith(b"#!") or re.search(rb"\b%b\b" % command.encode(), text) is not None

    def flags(self, *names: "str") -> "list[str]":
        """Options of `paddle` from the variables ``PADDLE_INIT_…``, as its Python API reads them."""
        flags = []
        for name in names:
            value = self.variables.get("PADDLE_INIT_" + name.upper())
            if value is not None:
                flags.append("--%s=%s" % (name, value))
        return flags

    def announce_trainer(self, version: "str") -> "None":
        job = self.variables.get("PADDLE_JOB_NAME", "")
        for label, role in (("paddle-job-pserver", PSERVER), ("paddle-job", TRAINER)):
            print("label selector: %s=%s, desired: %d" % (label, job, self.count(role)))
            running = [("Running", peer.ip) for peer in self._known_peers(role)]
            print("running pod list:  %s" % running)
        number = self.variables.get("PADDLE_INIT_NUM_GRADIENT_SERVERS", "")
        print(
            "Starting training job:  %s, num_gradient_servers: %s, trainer_id:  %d, version:  %s"
            % (self._package, number, self.index, version)
        )
        sys.stdout.flush()

    # -- peers -------------------------------------------------------------------------------------

    def _known_peers(self, role: "str") -> "list[Peer]":
        """Tasks of a role, by index. The tasks of a gang know each other; others are asked for."""
        number = self.count(role)
        peers = []
        for index in range(number):
            ip = self.variables.get("PAI_HOST_IP_%s_%d" % (role, index))
            ports = self.variables.get("PAI_PORT_LIST_%s_%d_%s" % (role, index, _PORT_LABEL))
            if not ip or not ports:
                return self._reported_peers(role)
            peers.append(Peer(ip, ports.split(",")[0]))
        return peers

    def _reported_peers(self, role: "str") -> "list[Peer]":
        server = Storage(
            self.variables.get("PAI_REST_SERVER_URI", ""), self.variables.get("PAI_USER_TOKEN", "")
        )
        name = quote(self.variables.get("PAI_FRAMEWORK_NAME", ""), safe="~")
        detail = server.get_json("/api/v2/jobs/" + name)
        return _peers_in(detail, role)

    def wait_for(self, role: "str", number: "int") -> "list[Peer]":
        """Wait until this many tasks of a role run; they may start later than this one."""
        while True:
            running = [peer for peer in self._reported_peers(role) if peer.is_running and peer.ip]
            if len(running) >= number:
                return running
            if self._is_stopped.wait(_POLL_INTERVAL_S):
                raise LaunchError("The task was stopped before all tasks of the job ran.")

    def watch_trainers(self) -> "None":
        """End this task's program, with success, when no trainer is left."""

        def watch() -> "None":
            while not self._is_stopped.wait(_POLL_INTERVAL_S):
                try:
                    trainers = self._reported_peers(TRAINER)
                except (WebHdfsError, OSError, ValueError):
                    continue
                if len(trainers) >= self.count(TRAINER) and all(peer.has_ended for peer in trainers):
                    print("All trainers have ended.")
                    self._is_done = True
                    self.stop()

        thread = threading.Thread(target=watch)
        thread.daemon = True
        thread.start()

    def _own_port(self) -> "str":
        ports = self.variables.get("PAI_CONTAINER_HOST_%s_PORT_LIST" % _PORT_LABEL, "")
        return ports.split(",")[0] or self.variables.get("PADDLE_INIT_PORT", "")

    # -- the program -------------------------------------------------------------------------------

    def run(self, command: "list[str]") -> "int":
        """Run a program to its end; its exit code as a shell gives it."""
        sys.stdout.flush()
        if self._is_stopped.is_set():
            return _SIGNAL_BASE + signal.SIGTERM
        self._program = subprocess.Popen(command, env=self.variables)
        code = self._program.wait()
        if self._is_done:
            return 0
        return code if code >= 0 else _SIGNAL_BASE - code

    def wait_until_stopped(self) -> "int":
        sys.stdout.flush()
        self._is_stopped.wait()
        return 0 if self._is_done else _SIGNAL_BASE + signal.SIGTERM

    def stop(self) -> "None":
        self._is_stopped.set()
        program = self._program
        if program is not None and program.poll() is None:
            program.terminate()

    def finish(self, code: "int") -> "int":
        print("job returned %d...setting pod return message..." % code)
        return code

    # -- the package -------------------------------------------------------------------------------

    def _copy_package(self) -> "None":
        if not self._stored:
            raise LaunchError("The variable %s does not name the package of the job." % STORED_PACKAGE)
        self._package = os.path.join(self._work, posixpath.basename(self._stored.rstrip("/")) or "package")
        own, storage, path = self._own_copy(), *hdfs_paths.resolve(self._stored)
        if own and _is_folder(storage, own):
            self._has_copy, path = True, own
        elif not _is_folder(storage, path):
            raise LaunchError("The package of the job, %s, is no longer on the storage." % self._stored)
        os.makedirs(self._package, exist_ok=True)
        for entry in storage.entries(path):
            name = entry["pathSuffix"]
            hdfs_cli.get_one(storage, posixpath.join(path, name), entry, os.path.join(self._package, name))
        for file in files_below(self._package):
            _make_script_executable(file)
            self._copied[file] = _version(file)

    def _own_copy(self) -> "str":
        """Path of the job's own copy of the package on the storage; empty if it has none."""
        home = "/pfs/%s/home/" % self.variables.get("PADDLE_CLOUD_CURRENT_DATACENTER", "")
        copy = self.variables.get(PACKAGE_COPY, "")
        return "/user/" + copy[len(home) :] if copy.startswith(home) else ""

    def _store(self, storage: "Storage", path: "str", file: "str", name: "str") -> "None":
        """Store a file in the job's own copy, where a second attempt finds it, and in the package."""
        if not self._has_copy:
            storage.put(file, posixpath.join(path, name))
            return
        storage.put(file, posixpath.join(self._own_copy(), name))
        if self._server is None:  # one connection for all files
            address = self.variables.get("PAI_REST_SERVER_URI", "")
            self._server = Storage(address, self.variables.get("PAI_USER_TOKEN", ""))
        package = os.environ["TRAINER_PACKAGE"]
        reply = self._server.post_json(
            "/api/v1/pfs/files",
            {
                "method": "cp",
                "path": posixpath.join(self.variables[PACKAGE_COPY], name),
                "dest": posixpath.join(package, name),
            },
        )
        if reply["err"]:
            raise WebHdfsError(reply["err"])

    def mentions_roles(self) -> "bool":
        """Whether the entry or a file of the package reads the role of its task."""
        if _ROLE_VARIABLE in self.variables.get("ENTRY", "").encode("utf-8", "replace"):
            return True
        for file in self._copied:
            if os.path.getsize(file) <= _MAX_SEARCHED_BYTES:
                with open(file, "rb") as f:
                    if _ROLE_VARIABLE in f.read():
                        return True
        return False

    def store_changes(self, code: "int") -> "int":
        """Store what the program wrote in the package; a file that cannot be stored fails the task."""
        if not self._package:
            return code
        try:
            storage, path = hdfs_paths.resolve(self._stored)
            for file in sorted(files_below(self._package)):
                name = os.path.relpath(file, self._package).replace(os.sep, "/")
                if os.path.islink(file) or not is_utf8(name) or "__pycache__/" in name:
                    continue
                if self._copied.get(file) != _version(file):
                    self._store(storage, path, file, name)
        except (WebHdfsError, hdfs_paths.HdfsCommandError, OSError) as error:
            sys.stderr.write(
                "Files of the package could not be stored: %s\n" % (getattr(error, "strerror", None) or error)
            )
            return code or 1
        return code

    def split_train_list(self) -> "bool":
        """Write this trainer's part of the list in ``TRAIN_LIST``; False when there is none for it."""
        path = self.variables.get("TRAIN_LIST")
        if not path:
            return True
        try:
            with open(path) as f:
                lines = f.readlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LaunchError(
                "The list of training files in TRAIN_LIST, %s, cannot be read: %s." % (path, reason)
            )
        size = -(-len(lines) // max(1, self.count(TRAINER)))
        if len(lines) < self.count(TRAINER):
            print("file count less than trainers")
            return False
        self._write("train.list", "".join(lines[self.index * size : (self.index + 1) * size]))
        return True

    def _write(self, name: "str", text: "str") -> "None":
        """Write a file that programs read: in the working folder, and in the root of a container."""
        folders = [self._work]
        if self.variables.get("PAI_RUNTIME_DIR", "").startswith("/usr/local/pai"):
            folders.append("/")
        for folder in folders:
            try:
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            except OSError:
                # The root of a container may be read-only.
                continue


def _peers_in(detail: "Any", role: "str") -> "list[Peer]":
    statuses = (detail.get("taskRoles", {}).get(role) or {}).get("taskStatuses") or []
    peers = []
    for status in sorted(statuses, key=lambda status: int(status.get("taskIndex", 0))):
        ports = str((status.get("containerPorts") or {}).get(_PORT_LABEL) or "")
        state = status.get("taskState")
        peers.append(
            Peer(status.get("containerIp") or "", ports.split(",")[0], state == "RUNNING", state in _ENDED)
        )
    return peers


def _is_folder(storage: "Storage", path: "str") -> "bool":
    status = storage.status(path)
    return status is not None and status["type"] == "DIRECTORY"


def _version(file: "str") -> "tuple[int, int]":
    status = os.lstat(file)
    return status.st_size, status.st_mtime_ns


def _make_script_executable(file: "str") -> "None":
    """Uploads do not keep modes: a file that names its interpreter is a program."""
    with open(file, "rb") as f:
        is_script = f.read(2) == b"#!"
    if is_script:
        os.chmod(file, os.stat(file).st_mode | 0o111)
