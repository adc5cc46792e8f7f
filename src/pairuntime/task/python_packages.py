"""Python packages for a task: an environment built once for the same wishes, and then used again.

``pairuntime packages [--python PYTHON] PACKAGE...`` prints the line a shell evaluates to use it.
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
    words = (shlex.quote(folder), shlex.quote(os.path.join(folder, "bin")))
    print("export VIRTUAL_ENV=%s PATH=%s:$PATH" % words)
    return 0


def environment(python: "str", packages: "list[str]") -> "str":
    """The folder of an environment that has these packages and sees those of this Python."""
    found = subprocess.check_output([python, "-c", "import sys; print(sys.executable, sys.version)"])
    wishes = "\0".join([found.decode()] + sorted(packages))
    folder = os.path.join(_cache(), hashlib.sha256(wishes.encode()).hexdigest()[:20])
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        # Tasks of one job ask at the same time: the first builds it, the others use it.
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, _READY)):
            shutil.rmtree(folder, ignore_errors=True)
            _build(python, packages, folder)
    return folder


def _build(python: "str", packages: "list[str]", folder: "str") -> "None":
    sys.stderr.write("Installing %s, once for this machine.\n" % " ".join(packages))
    sys.stderr.flush()
    subprocess.check_call([python, "-m", "venv", "--system-site-packages", folder], stdout=sys.stderr)
    inside = os.path.join(folder, "bin", "python")
    # What this Python sees, which may itself be that of an environment, is seen there too.
    ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    seen = subprocess.check_output([python, "-c", ask]).decode().strip()
    own = subprocess.check_output([inside, "-c", ask]).decode().strip()
    with open(os.path.join(own, "seen.pth"), "w") as f:
        f.write(seen + "\n")
    pip = [inside, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.check_call(pip + packages, stdout=sys.stderr)
    with open(os.path.join(folder, _READY), "w") as f:
        f.write("\n".join(packages))


def _cache() -> "str":
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "openpaisdk", "packages")


def _reason(error: "Exception") -> "str":
    if isinstance(error, subprocess.CalledProcessError):
        return "%s ended with status %d." % (" ".join(error.cmd[1:4]), error.returncode)
    return str(error)
