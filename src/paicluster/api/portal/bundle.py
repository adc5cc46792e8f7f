"""Files of the web portal, as `portal/build.mjs` writes them: hashed names, compressed ahead of time."""

from __future__ import annotations

import gzip
import mimetypes
from pathlib import Path

import msgspec

FOLDER = Path(__file__).with_name("files")
"""Made by the package build or `make portal`; not in the repository."""
INDEX = "index.html"

_ENCODINGS = {"br": ".br", "gzip": ".gz"}


class File(msgspec.Struct, frozen=True):
    """A file by its encodings, of which `gzip` is always there."""

    media_type: str
    encoded: dict[str, bytes]

    def body(self, accept_encoding: str) -> tuple[bytes, str | None]:
        """Bytes for a client that accepts these encodings, and the encoding of these bytes."""
        accepted = {part.partition(";")[0].strip() for part in accept_encoding.split(",")}
        for encoding, content in self.encoded.items():
            if encoding in accepted:
                return content, encoding
        return gzip.decompress(self.encoded["gzip"]), None


class Bundle:
    """The portal's files in memory, read at the first use and again after another build."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._built_ns = 0
        self._files: dict[str, File] = {}

    def index(self) -> File | None:
        """The page that loads everything else; None in a package that was built without the portal."""
        try:
            built_ns = (self._folder / f"{INDEX}.gz").stat().st_mtime_ns
        except OSError:
            return None
        if built_ns != self._built_ns:
            # Pages that are open keep the files of an earlier build.
            self._files |= _read(self._folder)
            self._built_ns = built_ns
        return self._files.get(INDEX)

    def file(self, name: str) -> File | None:
        if name not in self._files:
            self.index()
        return self._files.get(name)


def _read(folder: Path) -> dict[str, File]:
    files = {}
    for path in sorted(folder.glob("*.gz")):
        name = path.name.removesuffix(".gz")
        encoded = {
            encoding: file.read_bytes()
            for encoding, suffix in _ENCODINGS.items()
            if (file := folder / (name + suffix)).exists()
        }
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        files[name] = File(media_type, encoded)
    return files
