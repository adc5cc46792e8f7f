"""Builds a release into a folder: wheel, source distribution, SBOM, and the checksums of the three.

The same commit with the same build tools gives the same bytes: times are that of the commit, the build writes
files in order and with fixed modes, and npm installs what its lock file names. The wheel is built from the
source distribution.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from hatchling.builders.utils import get_reproducible_timestamp

from sbom import sbom

_REPOSITORY = Path(__file__).resolve().parent.parent
_CHECKSUMS = "SHA256SUMS"
_PORTAL_PAGE = "paicluster/api/portal/files/index.html.gz"


class BuildError(Exception):
    """The release cannot be built; the message says why, in sentences."""


def build_release(folder: Path) -> list[Path]:
    """Build into the folder, whose contents are replaced; returns its files."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(_commit_time_s())}
    with tempfile.TemporaryDirectory() as scratch:
        # Not isolated: the versions of the build tools are those of this environment, which the SBOM names.
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", scratch, str(_REPOSITORY)]
        done = subprocess.run(
            command, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = done.stdout.decode(errors="replace").rstrip()
        if done.returncode:
            raise BuildError(f"{output}\nThe build failed; its output is above.")
        [wheel], [source] = Path(scratch).glob("*.whl"), Path(scratch).glob("*.tar.gz")
        with zipfile.ZipFile(wheel) as archive:
            if _PORTAL_PAGE not in archive.namelist():
                raise BuildError(f"{output}\nThe wheel has no web portal; the output above says why.")
        document = Path(scratch) / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
        lock = _REPOSITORY / "portal/package-lock.json"
        document.write_text(sbom(wheel, lock, int(environment["SOURCE_DATE_EPOCH"])), encoding="utf-8")
        files = sorted((wheel, source, document))
        sums = Path(scratch) / _CHECKSUMS
        sums.write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in files))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return [Path(shutil.copyfile(file, folder / file.name)) for file in (*files, sums)]


def _commit_time_s() -> int:
    """SOURCE_DATE_EPOCH if it is set; else the time of the commit, hatchling's own without a repository."""
    if "SOURCE_DATE_EPOCH" in os.environ or not (_REPOSITORY / ".git").exists():
        return get_reproducible_timestamp()
    if _git("status", "--porcelain"):
        print("The checkout has changes that are in no commit: this build is no release.", file=sys.stderr)
    return int(_git("log", "-1", "--format=%ct"))


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=_REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Build wheel, source distribution, SBOM and checksums.")
    parser.add_argument("folder", nargs="?", type=Path, default=_REPOSITORY / "dist")
    try:
        files = build_release(parser.parse_args().folder)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    for file in files:
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
