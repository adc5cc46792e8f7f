"""SSH access to the tasks of a job: the key and the host key as files, and the command line of `ssh`.

Never touches the user's own SSH configuration: all that is needed is in two files of one folder.
"""

from __future__ import annotations

import os

from paiprotocol.errors import NotFound, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

NO_SSH = "NoJobSshInfoError"
# User name in OpenPAI's containers.
_ROOT = "root"
_DOWNLOAD_TIMEOUT_S = 60


class SshTask:
    """Address of a task. ``name``: as ROLE-INDEX; empty where the cluster does not tell it."""

    def __init__(self, raw: dict[str, object]):
        self.host = str(raw.get("sshIp") or "")
        # OpenPAI has a list where a task has several ports.
        self.port = str(raw.get("sshPort") or "").partition(",")[0]
        self.user = str(raw.get("user") or _ROOT)
        self.name = self.user.partition("+")[2]
        for word in (self.host, self.port, self.user):
            # They become arguments of a command line and of a configuration file.
            if not word or word[0] == "-" or not word.isprintable() or any(c in " \"'\\#" for c in word):
                raise PaiError("The cluster's response has no valid SSH address.")


class SshAccess:
    """SSH information of a job as its cluster gives it."""

    def __init__(self, job: str, info: dict[str, object]):
        containers, pair = info.get("containers"), info.get("keyPair")
        raw = (
            [container for container in containers if isinstance(container, dict)]
            if isinstance(containers, list)
            else []
        )
        self.job = job
        self.tasks = [SshTask(container) for container in raw]
        pair = pair if isinstance(pair, dict) else {}
        self.link = str(pair.get("privateKeyDirectDownloadLink") or "")
        name = str(pair.get("privateKeyFileName") or "")
        is_plain = name == os.path.basename(name) and name.isprintable() and name[:1] not in ("", "-", ".")
        self.key_file = name if is_plain else job
        self.host_key = str(info.get("hostKey") or "")

    @property
    def known_hosts_file(self) -> str:
        return f"{self.key_file}.known_hosts"

    def task(self, role: str, index: int | None) -> SshTask:
        """The task of this role and number, by default the first one that runs."""
        if not role and index is None:
            return self.tasks[0]
        for task in self.tasks:
            its_role, _, its_index = task.name.rpartition("-")
            if role in ("", its_role) and its_index == str(index or 0):
                return task
        running = ", ".join(task.name for task in self.tasks if task.name) or "unknown"
        raise PaiError(
            f"Job {self.job} has no running task {role or 'of the first role'}[{index or 0}].",
            hint=f"Running tasks: {running}.",
        )

    def options(self, folder: str = "") -> list[tuple[str, str]]:
        """Options of `ssh`, with the files in this folder."""
        return [
            ("IdentityFile", os.path.join(folder, self.key_file)),
            ("IdentitiesOnly", "yes"),
            ("UserKnownHostsFile", os.path.join(folder, self.known_hosts_file)),
            # A cluster that does not tell its host key: the first one is kept.
            ("StrictHostKeyChecking", "yes" if self.host_key else "accept-new"),
        ]

    def command(self, task: SshTask) -> list[str]:
        """Command line that connects with a task, in the folder of the files."""
        (_, key), *others = self.options()
        # Without the user's own configuration, whose `Host *` would apply.
        command = ["ssh", "-F", "none", "-i", key]
        for name, value in others:
            command += ["-o", f"{name}={value}"]
        return [*command, "-p", task.port, f"{task.user}@{task.host}"]

    def write_files(self, cluster: ClusterClient) -> None:
        """Write the key and the host key into the current folder."""
        if not self.link:
            raise PaiError(
                f"Only the user of job {self.job} gets its SSH key.",
                hint="pai exec -t opens a shell, for administrators too.",
            )
        key = _download(cluster, self.link)
        _write_private(self.key_file, key)
        if self.host_key:
            lines = [f"[{host}]:{port} {self.host_key}\n" for host, port in self._addresses()]
            _write_private(self.known_hosts_file, "".join(lines).encode())

    def _addresses(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((task.host, task.port) for task in self.tasks))


def find_ssh_access(cluster: ClusterClient, job: str, user: str = "") -> SshAccess:
    """SSH access to a running job; raises for one that waits, has finished, or has none."""
    try:
        access = SshAccess(job, cluster.job_ssh(job, user))
    except NotFound as e:
        if e.code != NO_SSH:
            raise
        state = cluster.job(job, user).state
        raise no_container(job, state, e.hint) from None
    if not access.tasks:
        raise no_container(job, cluster.job(job, user).state, "")
    return access


def no_container(job: str, state: str, hint: str) -> PaiError:
    if state == "WAITING":
        return PaiError(
            f"Job {job} is still WAITING: it has no container yet.",
            hint=f"Connect later with: pai ssh-container -j {job}",
        )
    if state in ("SUCCEEDED", "FAILED", "STOPPED"):
        return PaiError(f"Job {job} has finished ({state}): its container is gone.")
    return PaiError(
        f"Job {job} cannot be reached by SSH.", hint=hint or f"Open a shell with: pai exec -t {job}"
    )


def _download(cluster: ClusterClient, link: str) -> bytes:
    """The key. The link itself authorizes: another server than the cluster's own gets no token."""
    from urllib.parse import urlsplit

    address = urlsplit(link)
    if address.netloc == urlsplit(cluster.uri).netloc:
        values = dict(pair.split("=", 1) for pair in address.query.split("&") if "=" in pair)
        return cluster.transport.request("GET", address.path, values=values, at_root=True, whole=True).read()
    from urllib.request import urlopen

    if address.scheme not in ("http", "https"):
        raise PaiError("The cluster's response has no valid link to the key.")
    try:
        with urlopen(link, timeout=_DOWNLOAD_TIMEOUT_S) as response:
            return bytes(response.read())
    except OSError as e:
        raise PaiError(f"The SSH key could not be downloaded from {address.netloc}: {e}.") from None


def _write_private(file: str, content: bytes) -> None:
    """Write a file that only its user can read; an existing one is replaced as a whole."""
    temporary = f"{file}.{os.getpid()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(content)
        os.replace(temporary, file)
    except OSError as e:
        raise PaiError(
            f"The SSH key cannot be written to {os.path.abspath(file)}: {e.strerror}.",
            hint="Run the command in a folder that you may write to.",
        ) from None
