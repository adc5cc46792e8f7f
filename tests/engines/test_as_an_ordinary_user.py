"""The same suite without root's rights: in cgroups that were delegated, and with none at all."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import missing

_ROOM = Path(__file__).parent
# Nobody's account, so that no limit counts anybody else's processes.
_UID = 54321


@pytest.fixture
def delegated() -> Iterator[list[Path]]:
    """A cgroup of each kind that belongs to the ordinary user, as a machine's administrator makes them."""
    if os.geteuid() != 0:
        missing("root, who can become somebody else")
    parents = [_mounted("cgroup2"), _mounted("cgroup", "pids")]
    groups = [parent / f"pai-delegated-{os.getpid()}" for parent in parents]
    for group in groups:
        group.mkdir()
        for path in (group, *group.iterdir()):
            os.chown(path, _UID, _UID)
    yield groups
    for group in groups:
        deadline = time.monotonic() + 5
        for path in sorted(group.rglob("*"), reverse=True):
            if path.is_dir():
                path.rmdir()
        while group.exists() and time.monotonic() < deadline:
            try:
                group.rmdir()
            except OSError:
                time.sleep(0.02)


def _mounted(kind: str, option: str = "") -> Path:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, found, options, *_ = line.split()
        if found == kind and (not option or option in options.split(",")):
            return Path(where)
    missing(f"a {kind} file system {option}".rstrip())
    raise AssertionError


def _hidden() -> dict[Path, set[Path]]:
    """What the ordinary user needs and cannot reach, by the folder that bars the way."""
    needed = {_ROOM.parent.parent, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    barred: dict[Path, set[Path]] = {}
    for path in needed:
        for folder in reversed(path.parents):
            if not folder.stat().st_mode & 0o001:
                barred.setdefault(folder, set()).add(path)
                break
    return barred


def _script(scratch: Path, groups: list[Path], command: list[str]) -> str:
    """In mounts of its own: opens the barred ways, joins the cgroups, becomes the ordinary user."""
    lines = ["set -e", *(f"echo $$ > {group}/cgroup.procs" for group in groups)]
    for number, (folder, paths) in enumerate(_hidden().items()):
        asides = {path: scratch / f"aside-{number}-{n}" for n, path in enumerate(sorted(paths))}
        for path, aside in asides.items():
            lines += [f"mkdir -p {aside}", f"mount --bind {shlex.quote(str(path))} {aside}"]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}")
        for path, aside in asides.items():
            where = shlex.quote(str(path))
            lines += [f"mkdir -p {where}", f"mount --bind {aside} {where}"]
    lines.append(f"exec setpriv --reuid {_UID} --regid {_UID} --clear-groups -- {shlex.join(command)}")
    return "\n".join(lines)


@pytest.mark.slow
def test_the_process_engine_keeps_its_contract_for_an_ordinary_user(delegated: list[Path]) -> None:
    scratch = Path("/tmp") / f"pai-ordinary-{os.getpid()}"
    home = scratch / "home"
    home.mkdir(parents=True)
    scratch.chmod(0o755)
    os.chown(home, _UID, _UID)
    modules = ("test_process_engine_contract.py", "test_process_engine_bad_days.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={home / 'tmp'}"]
    # A small disk takes a mount, and that takes root. Everything else must be there: a skip is no pass.
    command += ["-k", "not full_disk", "-rs", *(str(_ROOM / name) for name in modules)]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "USER": "ordinary",
        "CI": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        ran = subprocess.run(
            ["unshare", "--mount", "bash", "-c", _script(scratch, delegated, command)],
            env=environment,
            cwd=_ROOM.parent.parent,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
        assert " passed" in ran.stdout
        assert "skipped" not in ran.stdout
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
