from support.http_peer import peer_fixture as peer_fixture
