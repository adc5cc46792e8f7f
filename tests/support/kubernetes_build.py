"""Kubernetes 1.20, built once from Debian's source package into a folder of the user's cache.

Nothing of the machine is changed: the compiler is unpacked into a scratch folder, and removed with it.
Takes 16 minutes of one processor, and 3 GB. `python -m support.kubernetes_build`, in `tests`, does it alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from support.external_services import debian

VERSION = "1.20.2"
# Changes with the recipe: what was built by another one is built again.
_RECIPE = f"{VERSION} 1"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
# The only Debian release with a complete source package.
_RELEASE = "bookworm"
_MIRROR = "http://deb.debian.org/debian/"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UNPACKED = ("golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev")
_PACKAGES = ["gcc", "libc6-dev", "make", "rsync", "patch", "xz-utils", "dpkg-dev"]
_COMMANDS = ["gcc", "make", "rsync", "patch", "xz", "dpkg-source"]
_TIMEOUT_S = 3 * 3600
# Holds the namespaces of a pod; as the first process of shared ones it reaps.
_PAUSE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, NULL, WNOHANG) > 0); }
int main(void) {
  struct sigaction ends = {.sa_handler = end}, reaps = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &ends, 0); sigaction(SIGTERM, &ends, 0); sigaction(SIGCHLD, &reaps, 0);
  for (;;) pause();
}
"""


def cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "openpaisdk-tests" / f"kubernetes-{VERSION}"


def built() -> Path:
    """Folder with the programs; built now if they are not there."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = folder / "recipe"
        if not (mark.exists() and mark.read_text() == _RECIPE):
            _build(folder)
            mark.write_text(_RECIPE)
    return folder


def _build(folder: Path) -> None:
    debian(_PACKAGES, commands=_COMMANDS)
    print(
        f"\nBuilding Kubernetes {VERSION} from Debian's source package into {folder}: 10 to 40 minutes. "
        f"Log: {folder}/build.log",
        file=sys.__stderr__,
        flush=True,
    )
    began = time.monotonic()
    scratch = folder / "scratch"
    _remove(scratch)
    scratch.mkdir()
    try:
        with (folder / "build.log").open("wb") as log:
            _fetch(scratch, log)
            _compile(scratch, folder, log)
    except subprocess.CalledProcessError as error:
        tail = (folder / "build.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"Kubernetes could not be built: {error}\n{tail}") from None
    finally:
        _remove(scratch)
    print(f"Built in {time.monotonic() - began:.0f} s.", file=sys.__stderr__, flush=True)


def _fetch(scratch: Path, log: object) -> None:
    """The source package, verified by apt with its own lists, and the packages that are unpacked."""
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / "apt" / name).mkdir(parents=True)
    sources = scratch / "apt/sources.list"
    sources.write_text(
        "".join(f"{kind} [signed-by={_KEYRING}] {_MIRROR} {_RELEASE} main\n" for kind in ("deb", "deb-src"))
    )
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"]
    apt += ["-o", f"Dir::State::lists={scratch}/apt/lists", "-o", f"Dir::Cache={scratch}/apt/cache"]
    apt += ["-o", f"APT::Sandbox::User={'root' if os.geteuid() == 0 else ''}"]
    _run([*apt, "update"], scratch, log)
    _run([*apt, "source", "--download-only", "kubernetes"], scratch, log)
    _run([*apt, "download", *_UNPACKED], scratch, log)
    # Debian's own changes are for its packaging; apt has verified the files.
    description = next(scratch.glob("kubernetes_*.dsc"))
    _run(["dpkg-source", "--no-check", "-x", description.name, "src"], scratch, log)
    for package in scratch.glob("*.deb"):
        _run(["dpkg-deb", "-x", package.name, "unpacked"], scratch, log)
    # With Go 1.18 and later the vendored reflect2 1.0.1 crashes when it iterates over a map.
    vendored = scratch / "src/vendor/github.com/modern-go/reflect2"
    newer = scratch / "unpacked/usr/share/gocode/src/github.com/modern-go/reflect2"
    for folder, pattern in ((vendored, "unlink"), (newer, "copy")):
        for file in (*folder.glob("*.go"), *folder.glob("*.s")):
            if pattern == "unlink":
                file.unlink()
            else:
                shutil.copy(file, vendored)


def _compile(scratch: Path, target: Path, log: object) -> None:
    source, go = scratch / "src", scratch / "unpacked/usr/lib/go-1.19"
    # Debian's package has links from there to /usr/share.
    for link in [path for path in go.iterdir() if path.is_symlink()]:
        meant = scratch / "unpacked" / os.path.normpath(go / link.readlink()).lstrip("/")
        if not link.exists() and not link.readlink().is_absolute():
            raise RuntimeError(f"{link} leads nowhere")
        if link.readlink().is_absolute():
            meant = scratch / "unpacked" / str(link.readlink()).lstrip("/")
            link.unlink()
            link.symlink_to(meant)
    # There is no git here to say which version it is.
    version = scratch / "version"
    version.write_text(
        f"KUBE_GIT_COMMIT=debian\nKUBE_GIT_TREE_STATE=archive\nKUBE_GIT_VERSION=v{VERSION}\n"
        "KUBE_GIT_MAJOR=1\nKUBE_GIT_MINOR=20\n"
    )
    for name in ("home", "tmp", "gocache"):
        (scratch / name).mkdir()
    inner = source / ".go/src/k8s.io"
    inner.mkdir(parents=True)
    (inner / "kubernetes").symlink_to("../../..")
    environment = {
        "PATH": f"{go}/bin:{os.environ['PATH']}",
        "HOME": str(scratch / "home"),
        "GOROOT": str(go),
        "GOPATH": str(source / ".go"),
        "GOCACHE": str(scratch / "gocache"),
        "GOTMPDIR": str(scratch / "tmp"),
        # Without the libraries of cloud providers, which take a third of the time.
        "GOFLAGS": "-mod=vendor -tags=providerless",
        "GOPROXY": "off",
        "GO111MODULE": "auto",
        "CGO_ENABLED": "0",
        "KUBE_GIT_VERSION_FILE": str(version),
        "LC_ALL": "C.UTF-8",
    }
    what = " ".join(f"cmd/{name}" for name in PROGRAMS)
    _run(["nice", "make", "GOLDFLAGS=-s -w", f"WHAT={what}"], source, log, environment)
    for name in PROGRAMS:
        made = next(path for path in (source / "_output/local/bin").rglob(name) if path.is_file())
        shutil.copy(made, target / name)
    (scratch / "pause.c").write_text(_PAUSE)
    _run(["gcc", "-Os", "-static", "-s", "-o", str(target / "pause"), "pause.c"], scratch, log)


def _run(command: list[str], folder: Path, log: object, environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,  # type: ignore[arg-type]
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=True,
    )


def _remove(folder: Path) -> None:
    if folder.exists():
        # Go's own cache of modules is read-only.
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False)
        shutil.rmtree(folder)


if __name__ == "__main__":
    print(built())
