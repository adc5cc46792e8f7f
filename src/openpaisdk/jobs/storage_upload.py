"""Files of a job on a cluster that has no place for them of its own: they go there and back by its storage.

Beside the files travels the runtime, one file of the standard library alone: the job needs no package, no
git, and of the network only the storage.
"""

from __future__ import annotations

import json

from openpaisdk.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.sources import SourceArchive

_WHERE = "$PWD/.pai"
# Which Python the image has is found out there.
_FETCH = (
    "import sys,urllib.request as u;open(sys.argv[2],'wb').write(u.urlopen(sys.argv[1],timeout=120).read())"
)


def retarget_output(line: object, old: str, new: str) -> object:
    """A command of :meth:`Carrier.lines`, for another job with the same files; any other as it is."""
    if not isinstance(line, str) or "export PAI_KEEP=" not in line:
        return line
    return line.replace(f"/jobs/{old}/output", f"/jobs/{new}/output", 1)


class StorageUploader:
    """Brings files to ``<workspace>/jobs/<job>/source`` and says how a job fetches them."""

    def __init__(self, cluster: ClusterClient, workspace: str = ""):
        from openpaisdk.storage.catalog import choose, storages_of
        from openpaisdk.storage.location import HDFS, SELECTED

        entry = choose(storages_of(cluster), SELECTED, "", cluster.alias)
        if entry.kind != HDFS:
            raise UsageError(
                f"The storage {entry.name} of {cluster.alias} cannot carry a job's files: it is not HDFS.",
                hint="Put them into the image, or on a storage that the job mounts; then add --no-sources.",
            )
        self._cluster = cluster
        self._workspace = (workspace or f"/user/{cluster.user}").rstrip("/")
        at_the_door = entry.webhdfs.startswith(cluster.uri)
        self._address = f"{cluster.uri}/webhdfs/api/v1" if at_the_door else f"{entry.webhdfs}/webhdfs/v1"

    def folder(self, name: str) -> str:
        return f"{self._workspace}/jobs/{name}"

    def job_commands(self, name: str, *, sources: bool, outputs: Sequence[str] = ()) -> list[str]:
        """The first commands of the job."""
        from shlex import quote

        folder = self.folder(name)
        told = {
            "address": self._address,
            "user": self._cluster.user,
            "target": f"{folder}/output",
            "folder": "@output@",
            "work": "@work@",
            "named": list(outputs),
        }
        # The shell puts the two folders in, where it begins; everything else is quoted for it.
        keep = json.dumps(told)
        for letter in '\\"`$':
            keep = keep.replace(letter, f"\\{letter}")
        keep = keep.replace("@output@", "$PAI_OUTPUT_DIR").replace("@work@", "$PWD")
        found = [
            f'pai_runtime="{_WHERE}/pairuntime.pyz"; mkdir -p "{_WHERE}/output"\n'
            "pai_python=$(command -v python3 || command -v python)\n"
            f'"$pai_python" -c {quote(_FETCH)} {quote(self._url(f"{folder}/source/pairuntime.pyz"))} '
            '"$pai_runtime"',
            f'export PAI_OUTPUT_DIR="{_WHERE}/output"\n'
            f'export PAI_KEEP="{keep}"\n'
            'trap \'pai_code=$?; "$pai_python" "$pai_runtime" keep || pai_code=${pai_code#0}; '
            "exit ${pai_code:-74}' EXIT",
        ]
        if sources:
            found.append(
                f'"$pai_python" "$pai_runtime" sources {quote(self._url(f"{folder}/source/{name}.tar"))}'
            )
        return found

    def upload(self, name: str, sources: SourceArchive | None) -> None:
        """The runtime, and the files; each whole or not at all."""
        from openpaisdk.storage import Storage
        from pairuntime.zipapp_build import NAME, zipapp_bytes

        storage = Storage.of(self._cluster)
        folder = f"{self.folder(name)}/source"
        storage.makedirs(folder)
        storage.backend.write_small(f"{folder}/{NAME}", zipapp_bytes(), 0, 0o644)
        if sources is not None:
            content = sources.content if sources.content is not None else b"".join(sources.chunks())
            storage.backend.write_small(f"{folder}/{name}.tar", content, 0, 0o644)

    def _url(self, path: str) -> str:
        from openpaisdk.client.address import query, quote

        where = "/".join(map(quote, path.split("/")))
        return f"{self._address}{where}{query({'op': 'OPEN', 'user.name': self._cluster.user})}"
