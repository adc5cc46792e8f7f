"""``pai doctor`` finds problems and suggests fixes."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from openpaisdk.cli.setup.optional_parts import EXTRA_PURPOSES, requirements
from support.http_peer import Peer
from support.paths import REPOSITORY
from support.ports import free_port
from support.recorded_openpai import USER, V18, token


def findings(user, status: int, **env: str) -> dict[str, list[dict]]:
    done = user.pai("doctor", "-o", "json", env=env)
    assert done.status == status, done
    found: dict[str, list[dict]] = {}
    for one in json.loads(done.out):
        found.setdefault(one["level"], []).append(one)
    return found


def test_fresh_setup_has_no_problems_and_nothing_is_created(new_user) -> None:
    done = new_user.pai("doctor")
    assert done.status == 0 and "No problems found." in done.err and "not running" in done.out, done
    assert not (new_user.home / ".openpai").exists()


def test_running_cluster_is_ok(user) -> None:
    good = findings(user, 0)["ok"]
    assert any("running at http://127.0.0.1" in one["message"] for one in good)


@pytest.fixture(name="bare_python")
def bare_python_fixture(tmp_path) -> Path:
    """A Python with this checkout, its metadata and PyYAML, and no other package."""
    packages = tmp_path / "venv/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages / "checkout.pth").write_text(f"{REPOSITORY / 'src'}\n")
    for package in ("openpaisdk", "PyYAML"):
        folder = Path(str(metadata.distribution(package)._path))
        (packages / folder.name).symlink_to(folder)
    (packages / "yaml").symlink_to(Path(yaml.__file__).parent)
    return tmp_path / "venv/bin/python"


def notes_of(python: Path, user) -> dict[str, list[dict]]:
    """What `pai doctor` of this Python finds, on a machine whose only program is apt-get."""
    program = "import sys; from openpaisdk.cli import pai; sys.exit(pai())"
    programs = user.home / "bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "apt-get").symlink_to("/bin/true")
    environment = {"HOME": str(user.home), "PATH": str(programs)}
    done = subprocess.run(
        [python, "-c", program, "doctor", "-o", "json"], env=environment, capture_output=True, check=False
    )
    assert done.returncode in (0, 1), done
    return {one["what"]: one for one in json.loads(done.stdout)}


def test_missing_packages_and_programs_are_named_with_the_command_that_installs_them(
    bare_python, new_user
) -> None:
    found = notes_of(bare_python, new_user)
    assert found["packages"]["level"] == "wrong"
    assert "xxhash" in found["packages"]["message"] and "PyYAML" not in found["packages"]["message"]
    assert found["extra s3"]["level"] == "note" and "storages on S3" in found["extra s3"]["message"]
    sudo = "" if os.geteuid() == 0 else "sudo "
    assert found["ssh"]["hint"] == f"{sudo}apt-get install openssh-client"
    assert found["git"]["hint"] == f"{sudo}apt-get install git"
    assert found["containers"]["hint"] == f"{sudo}apt-get install podman"


def test_command_that_installs_an_extra_is_that_of_the_installation(bare_python, new_user) -> None:
    environment = bare_python.parent.parent
    python = str(bare_python)
    assert notes_of(bare_python, new_user)["extra s3"]["hint"] == (
        f"uv pip install --python {python} 'openpaisdk[s3]'"
    )
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "pip").mkdir()
    assert notes_of(bare_python, new_user)["extra s3"]["hint"] == f"{python} -m pip install 'openpaisdk[s3]'"
    (environment / "uv-receipt.toml").touch()
    assert notes_of(bare_python, new_user)["extra s3"]["hint"] == f"uv pip install --python {python} s3fs"
    (environment / "pipx_metadata.json").touch()
    assert notes_of(bare_python, new_user)["extra s3"]["hint"] == "pipx inject openpaisdk s3fs"


def test_every_extra_of_the_package_is_explained() -> None:
    found = requirements()
    assert found is not None and set(found.extras) == set(EXTRA_PURPOSES)


@pytest.fixture
def doctor_user(new_user):
    new_user.folder = new_user.home / ".openpai"
    new_user.folder.mkdir()

    def write(entries: list[dict] | str, mode: int = 0o600) -> None:
        path = new_user.folder / "clusters.yaml"
        path.write_text(entries if isinstance(entries, str) else yaml.safe_dump(entries))
        path.chmod(mode)

    new_user.clusters = write
    return new_user


def test_broken_files_are_reported_with_a_fix(doctor_user) -> None:
    doctor_user.clusters("- [")
    (doctor_user.folder / "defaults.yaml").write_text("cluster-alias: missing\nimaeg: x\n")
    found = findings(doctor_user, 1)
    assert "not valid YAML" in found["wrong"][0]["message"] and "edit-clusters" in found["wrong"][0]["hint"]
    assert any("imaeg" in one["message"] for one in found["note"])
    doctor_user.clusters([{"cluster_alias": "local", "type": "embedded"}], 0o644)
    wrong = findings(doctor_user, 1)["wrong"]
    assert [one["what"] for one in wrong] == ["clusters file", "cluster-alias"]
    assert "chmod 600" in wrong[0]["hint"]


def test_clusters_and_tokens_are_checked(doctor_user) -> None:
    server = V18()
    server.token = token(time.time() + 3600)
    peer = Peer(server)
    port = free_port()
    base = {"user": USER, "info": {}}
    good = {"cluster_alias": "good", "pai_uri": peer.uri, "token": server.token, **base}
    doctor_user.clusters(
        [
            good,
            {**good, "cluster_alias": "old", "token": token(time.time() - 9)},
            {**good, "cluster_alias": "down", "pai_uri": f"http://127.0.0.1:{port}"},
            {**good, "cluster_alias": "keeps", "password": "in-clear"},
        ]
    )
    found = findings(doctor_user, 1, http_proxy="")
    peer.close()
    assert {one["what"] for one in found["wrong"]} == {"old", "down"}
    hints = {one["what"]: one["hint"] for one in found["wrong"]}
    assert hints["old"] == "Get a new one with: pai update-token -a old"
    notes = [(one["what"], one["message"]) for one in found["note"]]
    assert ("good", "Your token expires in 1 hours.") in notes
    assert any(what == "keeps" and "unencrypted" in message for what, message in notes)
    assert any("v1.8.1" in one["message"] for one in found["ok"])
    assert "in-clear" not in json.dumps(found)
