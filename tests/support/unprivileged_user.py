"""Runs tests and commands without root, as an account that is otherwise unused."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from support.paths import REPOSITORY, TESTS

ENGINES = TESTS / "paicluster/engines"
# An unused account, so that no limit counts other processes.
UID = 54321
_NAME = "pai-ordinary"
# These tests wait most of the time.
_WORKERS = 2


def _hidden() -> dict[Path, set[Path]]:
    """What the ordinary user needs and cannot reach, by the folder that bars the way."""
    needed = {REPOSITORY, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    barred: dict[Path, set[Path]] = {}
    for path in needed:
        for folder in reversed(path.parents):
            if not folder.stat().st_mode & 0o001:
                barred.setdefault(folder, set()).add(path)
                break
    return barred


def _script(scratch: Path, groups: Sequence[Path], command: list[str], fuse_mode: int) -> str:
    """In mounts of its own: opens the barred ways, joins the cgroups, becomes the ordinary user."""
    lines = ["set -e", *(f"echo $$ > {group}/cgroup.procs" for group in groups)]
    lines.append(f"mount --bind {scratch / 'etc'} /etc")
    if Path("/dev/fuse").exists():
        # Where no udev sets its mode, only root may open it.
        devices = scratch / "devices"
        lines += [f"mkdir {devices}", f"mount -t tmpfs -o mode=755 tmpfs {devices}"]
        lines += [f"mknod -m {fuse_mode:o} {devices}/fuse c 10 229", f"mount --bind {devices}/fuse /dev/fuse"]
    for number, (folder, paths) in enumerate(_hidden().items()):
        asides = {path: scratch / f"aside-{number}-{n}" for n, path in enumerate(sorted(paths))}
        for path, aside in asides.items():
            lines += [f"mkdir -p {aside}", f"mount --bind {shlex.quote(str(path))} {aside}"]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}")
        for path, aside in asides.items():
            where = shlex.quote(str(path))
            lines += [f"mkdir -p {where}", f"mount --bind {aside} {where}"]
    lines.append(f"exec setpriv --reuid {UID} --regid {UID} --clear-groups -- {shlex.join(command)}")
    return "\n".join(lines)


def run(modules: Sequence[str], *, words: Sequence[str] = (), groups: Sequence[Path] = ()) -> str:
    """Run these modules of the engines' tests; pytest's output. All must be there: skips are reported."""
    ran = run_command(
        lambda home: [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={home / 'tmp'}"),
            *("-n", str(_WORKERS), "--dist", "loadgroup", *words, *(str(ENGINES / name) for name in modules)),
        ],
        groups=groups,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout


def run_command(
    command: Callable[[Path], list[str]], *, groups: Sequence[Path] = (), fuse_mode: int = 0o666
) -> subprocess.CompletedProcess[str]:
    """Run a command; ``command`` gets the home of the account. ``fuse_mode``: of the device /dev/fuse.

    The account is known and may have others below it, as one that a machine's administrator made.
    """
    scratch = Path("/tmp") / f"pai-ordinary-{os.getpid()}"
    home = scratch / "home"
    runtime = scratch / "run"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "USER": _NAME,
        "XDG_RUNTIME_DIR": str(runtime),
        "TMPDIR": str(home),
        "CI": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        for folder in (home, runtime):
            folder.mkdir(parents=True)
            os.chown(folder, UID, UID)
            folder.chmod(0o700)
        scratch.chmod(0o755)
        _describe_account(scratch, home)
        return subprocess.run(
            ["unshare", "--mount", "bash", "-c", _script(scratch, groups, command(home), fuse_mode)],
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _describe_account(scratch: Path, home: Path) -> None:
    """Seen only by what runs there; the machine's own files stay as they are.

    All of /etc is copied: a mount on one of its files would end when another test adds an account, which
    replaces that file.
    """
    copy = ["cp", "-a", "/etc", str(scratch / "etc")]
    copied = subprocess.run(
        copy, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False
    )
    # Lock and temporary files of such a change may vanish while they are copied; nothing else may be missing.
    problems = copied.stderr.splitlines()
    assert all(line.endswith("No such file or directory") for line in problems), copied.stderr
    assert copied.returncode == 0 or problems
    lines = {
        "passwd": f"{_NAME}:x:{UID}:{UID}::{home}:/bin/sh\n",
        "group": f"{_NAME}:x:{UID}:\n",
        "subuid": f"{_NAME}:2000000:65536\n",
        "subgid": f"{_NAME}:2000000:65536\n",
    }
    for name, line in lines.items():
        file = scratch / "etc" / name
        if file.exists() or not name.startswith("sub"):
            with file.open("a") as out:
                out.write(line)
