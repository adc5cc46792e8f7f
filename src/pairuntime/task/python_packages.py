"""Python packages for a task: a virtual environment, built once for the same packages, then reused.

A path or URL says nothing about what is behind it: an environment with one of those is built for each task.

``pairuntime packages [--python PYTHON] PACKAGE...`` prints the shell line that activates it.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict

_READY = "ready"
# Part of an environment's key: one that was cached by a version which built it in another way is not used.
_LAYOUT = "2"
_FILES = (".whl", ".tar.gz", ".zip")
# Folders of packages that a Python reads at its start, with the .pth files in them.
_SITES_PROGRAM = """
import json, site, sysconfig
paths = sysconfig.get_paths()
sites = [paths["purelib"], paths["platlib"]] + getattr(site, "getsitepackages", list)()
if site.ENABLE_USER_SITE:
    sites.append(site.getusersitepackages())
print(json.dumps(sites))
"""
# An environment's own command: another one on the PATH would install into another environment.
_PIP_COMMAND = '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n'


def main(argv: "list[str]") -> "int":
    python = shutil.which("python") or "python3"
    if argv[:1] == ["--python"] and len(argv) > 1:
        python, argv = argv[1], argv[2:]
    try:
        folder = environment(python, argv)
    except (OSError, subprocess.CalledProcessError) as e:
        sys.stderr.write("The packages %s could not be installed: %s\n" % (" ".join(argv), reason(e)))
        return 1
    paths = (shlex.quote(folder), shlex.quote(os.path.join(folder, "bin")))
    print("export VIRTUAL_ENV=%s PATH=%s:$PATH" % paths)
    return 0


def environment(python: "str", packages: "list[str]") -> "str":
    """Folder of an environment with these packages, which also sees those of this Python."""
    version = subprocess.check_output([python, "-c", "import sys; print(sys.executable, sys.version)"])
    key = "\0".join([_LAYOUT, version.decode()] + sorted(packages))
    root = _task_folder() if _references(packages) else _cache()
    folder = os.path.join(root, hashlib.sha256(key.encode()).hexdigest()[:20])
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        # Tasks of one job start at the same time: the first builds it, the others wait and use it.
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, _READY)):
            shutil.rmtree(folder, ignore_errors=True)
            _build(python, packages, folder)
    return folder


def _build(python: "str", packages: "list[str]", folder: "str") -> "None":
    references = _references(packages)
    note = "" if references else " (cached on this machine)"
    sys.stderr.write("Installing %s%s.\n" % (" ".join(packages), note))
    sys.stderr.flush()
    venv = [python, "-m", "venv", "--without-pip", "--system-site-packages", folder]
    subprocess.check_call(venv, stdout=sys.stderr)
    venv_python = os.path.join(folder, "bin", "python")
    _share_sites(python, venv_python)
    _add_pip(venv_python)
    pip = [venv_python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.check_call(pip + packages, stdout=sys.stderr)
    if references:
        # pip leaves a package out if this Python sees one of the same name and version.
        again = pip + ["--force-reinstall", "--no-deps"] + references
        subprocess.check_call(again, stdout=sys.stderr)
    with open(os.path.join(folder, _READY), "w") as f:
        f.write("\n".join(packages))


def _share_sites(python: "str", venv_python: "str") -> "None":
    """Let an environment see the packages of this Python, also if it is the Python of a virtual environment.

    Packages that are installed as editable exist only in .pth files, which are read in a folder that is added
    as a site, not in one that is merely on the path. Such a file may run code, and Python reads those of a
    virtual environment twice: a module adds the folders, because it runs once.
    """
    own = _sites(venv_python)
    sites = [site for site in _sites(python) if site not in own]
    if not sites:
        return
    # An environment may be built on one of ours: each has a module of its own.
    module = "shared_sites_" + hashlib.sha256(own[0].encode()).hexdigest()[:12]
    with open(os.path.join(own[0], module + ".py"), "w") as f:
        f.write("import site\n\nfor folder in %s:\n    site.addsitedir(folder)\n" % json.dumps(sites))
    with open(os.path.join(own[0], "shared_sites.pth"), "w") as f:
        f.write("import %s\n" % module)


def _sites(python: "str") -> "list[str]":
    lines = subprocess.check_output([python, "-c", _SITES_PROGRAM]).decode().splitlines()
    # The last line: a .pth file may print something before.
    return list(OrderedDict.fromkeys(map(str, json.loads(lines[-1]))))


def _add_pip(python: "str") -> "None":
    """Give an environment the pip that its Python sees; installing another one takes several seconds."""
    if not _sees_pip(python):
        subprocess.check_call([python, "-m", "ensurepip", "--default-pip"], stdout=sys.stderr)
        return
    for name in ("pip", "pip3"):
        command = os.path.join(os.path.dirname(python), name)
        with open(command, "w") as f:
            f.write(_PIP_COMMAND)
        os.chmod(command, 0o755)


def _sees_pip(python: "str") -> "bool":
    return subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL) == 0


def _references(packages: "list[str]") -> "list[str]":
    """Packages that are given by path or URL."""
    return [p for p in packages if "://" in p or p.startswith((".", "/")) or p.endswith(_FILES)]


def _task_folder() -> "str":
    """A folder of this task, which is deleted with it; elsewhere only if it cannot be written."""
    folder = os.path.join(os.getcwd(), ".pai", "packages")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        folder = tempfile.mkdtemp(prefix="packages-")
    return folder


def _cache() -> "str":
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "openpaisdk", "packages")


def reason(error: "Exception") -> "str":
    if isinstance(error, subprocess.CalledProcessError):
        # The program and what it did: not its packages, nor the text of a program.
        words = error.cmd[:1] if error.cmd[1:2] == ["-c"] else error.cmd[:4]
        return "%s exited with status %d." % (" ".join(words), error.returncode)
    return str(error)
