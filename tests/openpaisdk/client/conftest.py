import pytest

from support.http_peer import Peer


@pytest.fixture
def peer():
    peers: list[Peer] = []

    def make(answer) -> Peer:
        peers.append(Peer(answer))
        return peers[-1]

    yield make
    for p in peers:
        p.close()
