"""Minimal wheels, for tests that install a package without an index."""

import zipfile
from pathlib import Path

WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


# Variable of a pip that installs a wheel: it would compare the needs of all packages that are installed here,
# which takes more than two seconds. (The value of an option that begins with "no" is that of its opposite.)
WITHOUT_COMPARISON = "PIP_NO_WARN_CONFLICTS=0"


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A wheel with these files by path."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": WHEEL,
    }
    record = "".join(f"{file},,\n" for file in content) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path
