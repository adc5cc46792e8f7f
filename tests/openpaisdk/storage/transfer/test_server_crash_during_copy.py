"""`kill -9` of the server in the middle of a copy: it comes back, and the copy goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import CliUser, until

pytestmark = pytest.mark.slow


@pytest.fixture
def person(tmp_path: Path) -> Iterator[CliUser]:
    found = CliUser(tmp_path / "person")
    found.start_cluster()
    yield found
    found.stop_cluster()


def journals(person: CliUser) -> int:
    """Number of parts of unfinished uploads that have arrived."""
    partial = person.cluster_home / "storage/.pai/partial"
    return sum(len(path.read_text().splitlines()) - 1 for path in partial.glob("*.parts"))


@pytest.mark.parametrize("way", [["--http"], []], ids=["over HTTP", "handed over"])
def test_copy_survives_a_server_crash(person: CliUser, way: list[str]) -> None:
    content = os.urandom(1 << 20) * 300
    (person.project / "f").write_bytes(content)
    (person.project / "old").write_bytes(b"old")
    there = "pai://local/0/user/${PAI_USER_NAME}/f"
    assert person.pai("copy", "old", there).status == 0
    process = person.begin("copy", *way, "f", there)
    try:
        until(lambda: journals(person) >= 2 or process.poll() is not None)
        os.kill(int(str(person.handshake()["pid"])), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass
    _, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert person.pai("copy", there, "back").status == 0
    assert (person.project / "back").read_bytes() == content
    assert journals(person) == 0
