"""Build of the runtime's zipapp: the same bytes for the same sources."""

import io
import os
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Iterator

NAME = "pairuntime.pyz"
_MAIN = "import sys\nfrom pairuntime.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"


def zipapp_bytes() -> "bytes":
    root = os.path.dirname(os.path.abspath(__file__))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
        for path in sorted(_sources(root)):
            name = "pairuntime/" + os.path.relpath(path, root).replace(os.sep, "/")
            with open(path, "rb") as f:
                archive.writestr(zipfile.ZipInfo(name), f.read())
    return out.getvalue()


def _sources(root: "str") -> "Iterator[str]":
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".py"):
                yield os.path.join(folder, name)
