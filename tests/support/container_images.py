"""Images made on the spot of what this machine has: nothing is downloaded."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from support.external_services import debian
from support.jupyter import environment_with_jupyter

_PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# busybox with its links; the same with bash and what the tests call, or with Python and its standard library,
# without or with Jupyter; a program without a shell.
PLAIN = "localhost/pai-test/plain:1"
WITH_BASH = "localhost/pai-test/bash:1"
WITH_PYTHON = "localhost/pai-test/python:{}.{}.{}".format(*sys.version_info)
WITH_JUPYTER = WITH_PYTHON.replace("/python:", "/jupyter:")
NO_SHELL = "localhost/pai-test/noshell:1"
_KINDS = {PLAIN: (), WITH_BASH: ("bash", "seq"), WITH_PYTHON: (), WITH_JUPYTER: (), NO_SHELL: None}
# Files of these packages and of all that they require: the path, and the name below the packages' folder.
_FILES_OF_JUPYTER = """
import importlib.metadata as m, os, re
found, left = {}, ["notebook", "nbclient", "nbconvert", "ipykernel", "tinycss2"]
while left:
    name = re.sub("[-_.]+", "-", re.match("[A-Za-z0-9._-]+", left.pop())[0]).lower()
    try:
        if name in found: continue
        found[name] = m.distribution(name)
    except m.PackageNotFoundError:
        continue
    left += [line for line in found[name].requires or () if "extra ==" not in line]
for one in found.values():
    for file in one.files or ():
        path = file.locate()
        if os.path.isfile(path) and "/bin/" not in str(file) and not str(file).endswith((".pyc", ".map")):
            print(path, file, sep="\\t")
"""
# Of a Python that is no virtual environment. Debian has another name for it, and another place.
_PACKAGES_FOLDER = "import site; print(site.getsitepackages()[0])"
_UNUSED_PYTHON = ("site-packages", "dist-packages", "test", "idlelib", "__pycache__", "config-*", "lib2to3")


def have_parts() -> None:
    debian(["busybox-static"], commands=["busybox"])


def tar_of(image: str) -> Path:
    """Root file system of an image as a tar; built once."""
    have_parts()
    name = hashlib.sha256(image.encode()).hexdigest()[:10]
    made = Path(tempfile.gettempdir()) / f"pai-test-image-{os.getuid()}-{name}.tar"
    with (made.with_suffix(".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                _fill(root, _KINDS[image])
                if image in (WITH_PYTHON, WITH_JUPYTER):
                    _add_python(root)
                if image == WITH_JUPYTER:
                    _add_jupyter(root)
                staging = made.with_suffix(".aside")
                with tarfile.open(staging, "w") as tar:
                    tar.add(root, ".")
                staging.rename(made)
    made.chmod(0o644)
    return made


def _fill(root: Path, programs: Sequence[str] | None) -> None:
    busybox = shutil.which("busybox")
    assert busybox is not None
    for name in ("bin", "tmp", "etc", "proc", "sys", "dev", "root"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    if programs is None:
        shutil.copy(busybox, root / "bin" / "only")
        return
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nsomebody:x:1234:1234::/tmp:/bin/sh\n")
    shutil.copy(busybox, root / "bin" / "busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        if name not in (*programs, "busybox"):
            (root / "bin" / name).symlink_to("busybox")
    for name in programs:
        path = shutil.which(name)
        assert path is not None
        _add_program(root, path, f"bin/{name}")


def _add_program(root: Path, path: str, name: str) -> None:
    """Copy a program and the shared libraries that it needs."""
    needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    for file in (path, *re.findall(r"(/\S+)", needed)):
        target = root / (name if file == path else file.lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _add_python(root: Path) -> None:
    program, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    _add_program(root, program, program.lstrip("/"))
    for extension in Path(library, "lib-dynload").glob("*.so"):
        _add_program(root, str(extension), str(extension).lstrip("/"))
    ignored = shutil.ignore_patterns(*_UNUSED_PYTHON)
    shutil.copytree(library, root / library.lstrip("/"), ignore=ignored, dirs_exist_ok=True)
    (root / "bin/python3").symlink_to(program)


def _add_jupyter(root: Path) -> None:
    """Copy the Jupyter that tests use, with the packages that it needs, to where the image's Python looks."""
    python = environment_with_jupyter() / "python"
    packages = Path(_output_of(os.path.realpath(sys.executable), _PACKAGES_FOLDER).strip().lstrip("/"))
    for line in _output_of(python, _FILES_OF_JUPYTER).splitlines():
        file, _, name = line.partition("\t")
        target = os.path.normpath(packages / name)
        if name.endswith(".so"):
            _add_program(root, file, target)
        elif not target.startswith(".."):
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / target)


def _output_of(python: str | Path, program: str) -> str:
    ran = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    return ran.stdout


@cache
def bring(program: str, where: str, image: str) -> None:
    """Have the image in the store of that podman or docker. ``where`` tells stores apart."""
    make(program, image)


def make(program: str, image: str, changes: Sequence[str] = (), name: str = "") -> None:
    """As `bring`, changed and under another name if need be."""
    name = name or image
    if is_here(program, name):
        return
    arguments = [word for change in (_PATH, *changes) for word in ("--change", change)]
    command = [program, "import", *arguments, str(tar_of(image)), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)


def is_here(program: str, name: str) -> bool:
    # podman's `inspect` fails while another image is being removed; docker has no `exists`.
    question = "exists" if program == "podman" else "inspect"
    output = subprocess.run([program, "image", question, name], capture_output=True, check=False)
    return output.returncode == 0


def make_own(program: str, name: str) -> None:
    """An image of the plain kind that is another one than all others, not only by its name.

    Names of one image are one list, which podman changes without looking again: of two processes that
    name or forget it at once, one may undo what the other did.
    """
    make(program, PLAIN, [f"LABEL own={name}"], name)
