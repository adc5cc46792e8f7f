import pytest

from support.cli_user import CliUser, new_user_fixture, shared_user_fixture, user_fixture  # noqa: F401
from support.pfs_peer import PfsPeer
from support.team_cluster import PASSWORD, module_team  # noqa: F401


class PaddleUser(CliUser):
    """A user of `paddlecloud` with a configuration file."""

    def configure(self, text: str) -> None:
        folder = self.home / ".paddle"
        folder.mkdir(exist_ok=True)
        (folder / "config").write_text(text)

    def paddlecloud(self, *words: str, **more):
        return self.run(["paddlecloud", *words], **more)


@pytest.fixture(name="paddle_user")
def paddle_user_fixture(tmp_path):
    return PaddleUser(tmp_path / "paddle")


@pytest.fixture(name="pfs_peer")
def pfs_peer_fixture():
    peer = PfsPeer()
    yield peer
    peer.close()


@pytest.fixture(name="cloud_user")
def cloud_user_fixture(paddle_user, pfs_peer):
    """A user whose datacenter dc1 is `pfs_peer`."""
    paddle_user.configure(f"dc1:\n  username: u1\n  password: secret\n  endpoint: {pfs_peer.uri}\n")
    return paddle_user


@pytest.fixture(name="alice")
def alice_fixture(paddle_user, team):
    """alice on a cluster of a team, with her password."""
    entry = "{{username: {}, password: {}, endpoint: '{}'}}"
    uri = f"http://{team.address[0]}:{team.address[1]}"
    paddle_user.configure(
        "".join(
            f"{dc}: {entry.format(user, PASSWORD, uri)}\n"
            for dc, user in (("dc1", "alice"), ("of-bob", "bob"))
        )
    )
    return paddle_user
