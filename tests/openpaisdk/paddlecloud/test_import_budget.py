"""Import budget: `paddlecloud` starts as fast as `pai`."""

import sys

import pytest

from support.cli_user import CliUser, until
from support.http_peer import Peer, reply
from support.import_budget import HEAVY, MEDIUM, OTHER_PACKAGES

RUN = """
import sys
before = set(sys.modules)
from openpaisdk.cli.main import run_program
from openpaisdk.paddlecloud.commands import call
status = run_program("paddlecloud", sys.argv[1:], call)
sys.stdout.flush()
sys.stderr.write("\\nIMPORTED " + " ".join(sorted(set(sys.modules) - before)) + "\\n")
sys.exit(status)
"""


def imported(user, *words: str) -> set[str]:
    done = user.run([sys.executable, "-c", RUN, *words])
    assert done.status == 0, done
    return set(done.err.rpartition("IMPORTED ")[2].split())


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["submit", "--help"], ["pfs"]])
def test_version_and_help_import_almost_nothing(paddle_user, words: list[str]) -> None:
    heavy = (HEAVY | OTHER_PACKAGES | MEDIUM) - (
        {"json", "socket", "pairuntime"} if "submit" in words else set()
    )
    assert not imported(paddle_user, *words) & heavy


@pytest.fixture(scope="module", name="settled_user")
def settled_user_fixture(tmp_path_factory):
    """A user whose configuration is old enough to be cached: parsing YAML takes longer than a command."""
    body = {"code": 200, "msg": "", "items": [], "files": [], "urls": [], "token": "t"}
    peer = Peer(lambda request: reply({**body, "msg": {"items": []} if "registry" in request.path else ""}))
    user = CliUser(tmp_path_factory.mktemp("settled"))
    (user.home / ".paddle").mkdir()
    (user.home / ".paddle/config").write_text(f"dc1: {{username: u1, password: p, endpoint: '{peer.uri}'}}")
    until(lambda: user.run(["paddlecloud", "jobs"]).status == 0 and (user.home / ".openpai/cache").exists())
    yield user
    peer.close()


@pytest.mark.parametrize(
    "words",
    [
        ["get", "jobs"],
        ["get", "-a", "jobs"],
        ["jobs"],
        ["get", "workers"],
        ["get", "quota"],
        ["logs", "j"],
        ["kill", "j"],
        ["publish"],
        ["get", "registry"],
        ["delete", "registry", "r"],
    ],
)
def test_commands_that_read_import_little(settled_user, words: list[str]) -> None:
    got = imported(settled_user, *words)
    assert not got & (HEAVY | OTHER_PACKAGES | {"hashlib", "difflib", "argparse"})
