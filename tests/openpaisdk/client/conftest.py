import pytest

from support.http_peer import Peer


@pytest.fixture
def peer():
    peers: list[Peer] = []

    def make(respond) -> Peer:
        peers.append(Peer(respond))
        return peers[-1]

    yield make
    for p in peers:
        p.close()
