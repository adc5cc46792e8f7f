"""Upload of a job's files through the storage of a cluster that has no source store.

The runtime (one file, standard library only) is uploaded with them: the job needs no package and no git, and
network access only to the storage. It downloads the sources and uploads the outputs.
"""

from __future__ import annotations

import json

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.sources import SourceArchive

_TASK_FOLDER = "$PWD/.pai"
_SOURCES = '"$pai_python" "$pai_runtime" sources '
# The Python of the image is located in the task.
_FETCH = (
    "import sys,urllib.request as u;open(sys.argv[2],'wb').write(u.urlopen(sys.argv[1],timeout=120).read())"
)


def retarget_output(line: object, old: str, new: str) -> object:
    """Change a command of :meth:`StorageUploader.job_commands` to another job's output folder."""
    if not isinstance(line, str) or "export PAI_OUTPUT_UPLOAD=" not in line:
        return line
    return line.replace(f"/jobs/{old}/output", f"/jobs/{new}/output", 1)


def stored_sources(line: str) -> str:
    """The path of the sources that a command of `StorageUploader.job_commands` downloads, or empty."""
    if not line.startswith(_SOURCES):
        return ""
    from shlex import split
    from urllib.parse import unquote, urlsplit

    path = unquote(urlsplit(split(line)[-1]).path)
    return "/" + path.partition("/webhdfs/")[2].removeprefix("api/").removeprefix("v1/")


class StorageUploader:
    """Uploads files to ``<workspace>/jobs/<job>/source`` and generates the commands that fetch them."""

    def __init__(self, cluster: ClusterClient, workspace: str = ""):
        from openpaisdk.storage.catalog import list_storages, select_storage
        from openpaisdk.storage.location import HDFS, SELECTED

        entry = select_storage(list_storages(cluster), SELECTED, "", cluster.alias)
        if entry.kind != HDFS:
            raise UsageError(
                f"The storage {entry.name} of {cluster.alias} cannot hold a job's files: it is not HDFS.",
                hint="Put them into the image or on a storage that the job mounts, and add --no-sources.",
            )
        self._cluster = cluster
        self._workspace = (workspace or f"/user/{cluster.user}").rstrip("/")
        behind_web_server = entry.webhdfs.startswith(cluster.uri)
        self._address = (
            f"{cluster.uri}/webhdfs/api/v1" if behind_web_server else f"{entry.webhdfs}/webhdfs/v1"
        )

    def folder(self, name: str) -> str:
        return f"{self._workspace}/jobs/{name}"

    def job_commands(self, name: str, *, sources: bool, outputs: Sequence[str] = ()) -> list[str]:
        """First commands of the job: fetch the runtime and sources, upload outputs at exit."""
        from shlex import quote

        folder = self.folder(name)
        settings = {
            "address": self._address,
            "user": self._cluster.user,
            "target": f"{folder}/output",
            "folder": "@output@",
            "work": "@work@",
            "patterns": list(outputs),
        }
        # The shell of the task substitutes the two folders; everything else is quoted.
        request = json.dumps(settings)
        for letter in '\\"`$':
            request = request.replace(letter, f"\\{letter}")
        request = request.replace("@output@", "$PAI_OUTPUT_DIR").replace("@work@", "$PWD")
        commands = [
            f'pai_runtime="{_TASK_FOLDER}/pairuntime.pyz"; mkdir -p "{_TASK_FOLDER}/output"\n'
            "pai_python=$(command -v python3 || command -v python)\n"
            f'"$pai_python" -c {quote(_FETCH)} {quote(self._url(f"{folder}/source/pairuntime.pyz"))} '
            '"$pai_runtime"',
            f'export PAI_OUTPUT_DIR="{_TASK_FOLDER}/output"\n'
            f'export PAI_OUTPUT_UPLOAD="{request}"\n'
            'trap \'pai_code=$?; "$pai_python" "$pai_runtime" upload-outputs || pai_code=${pai_code#0}; '
            "exit ${pai_code:-74}' EXIT",
        ]
        if sources:
            commands.append(f"{_SOURCES}{quote(self._url(f'{folder}/source/{name}.tar'))}")
        return commands

    def upload(self, name: str, sources: SourceArchive | None) -> None:
        """Upload the runtime and the source archive, each atomically."""
        from openpaisdk.storage import Storage
        from pairuntime.zipapp_build import NAME, zipapp_bytes

        storage = Storage.of_jobs(self._cluster)
        folder = f"{self.folder(name)}/source"
        storage.makedirs(folder)
        storage.backend.write_bytes(f"{folder}/{NAME}", zipapp_bytes(), 0, 0o644)
        if sources is not None:
            content = sources.content if sources.content is not None else b"".join(sources.chunks())
            storage.backend.write_bytes(f"{folder}/{name}.tar", content, 0, 0o644)

    def _url(self, path: str) -> str:
        from pairuntime.transport.http1 import query, quote

        quoted = "/".join(map(quote, path.split("/")))
        return f"{self._address}{quoted}{query({'op': 'OPEN', 'user.name': self._cluster.user})}"
