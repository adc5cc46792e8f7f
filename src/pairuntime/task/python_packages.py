"""Python packages for a task: a virtual environment, built once for the same packages, then reused.

``pairuntime packages [--python PYTHON] PACKAGE...`` prints the shell line that activates it.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys

_READY = "ready"


def main(argv: "list[str]") -> "int":
    python = "python3"
    if argv[:1] == ["--python"] and len(argv) > 1:
        python, argv = argv[1], argv[2:]
    try:
        folder = environment(python, argv)
    except (OSError, subprocess.CalledProcessError) as e:
        sys.stderr.write("The packages %s could not be installed: %s\n" % (" ".join(argv), _reason(e)))
        return 1
    paths = (shlex.quote(folder), shlex.quote(os.path.join(folder, "bin")))
    print("export VIRTUAL_ENV=%s PATH=%s:$PATH" % paths)
    return 0


def environment(python: "str", packages: "list[str]") -> "str":
    """Folder of an environment with these packages, which also sees those of this Python."""
    found = subprocess.check_output([python, "-c", "import sys; print(sys.executable, sys.version)"])
    key = "\0".join([found.decode()] + sorted(packages))
    folder = os.path.join(_cache(), hashlib.sha256(key.encode()).hexdigest()[:20])
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        # Tasks of one job start at the same time: the first builds it, the others wait and use it.
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, _READY)):
            shutil.rmtree(folder, ignore_errors=True)
            _build(python, packages, folder)
    return folder


def _build(python: "str", packages: "list[str]", folder: "str") -> "None":
    sys.stderr.write("Installing %s (cached on this machine).\n" % " ".join(packages))
    sys.stderr.flush()
    subprocess.check_call([python, "-m", "venv", "--system-site-packages", folder], stdout=sys.stderr)
    venv_python = os.path.join(folder, "bin", "python")
    # Packages that this Python sees are visible there too, also if it is the Python of a virtual environment.
    query = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    seen = subprocess.check_output([python, "-c", query]).decode().strip()
    own = subprocess.check_output([venv_python, "-c", query]).decode().strip()
    with open(os.path.join(own, "seen.pth"), "w") as f:
        f.write(seen + "\n")
    pip = [venv_python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.check_call(pip + packages, stdout=sys.stderr)
    with open(os.path.join(folder, _READY), "w") as f:
        f.write("\n".join(packages))


def _cache() -> "str":
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "openpaisdk", "packages")


def _reason(error: "Exception") -> "str":
    if isinstance(error, subprocess.CalledProcessError):
        return "%s exited with status %d." % (" ".join(error.cmd[1:4]), error.returncode)
    return str(error)
