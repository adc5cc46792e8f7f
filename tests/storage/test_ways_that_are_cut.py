"""How long a part is tried again when the way to the storage is cut."""

from __future__ import annotations

import time

import pytest

from openpaisdk.errors import ConnectionFailed
from openpaisdk.storage import lines
from openpaisdk.storage.lines import persistent


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PATIENCE", 0.3)


class Way:
    """Cut so often, each time after a while."""

    def __init__(self, cuts: int, after_s: float):
        self.cuts = cuts
        self.after_s = after_s
        self.tries = 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self.cuts:
            time.sleep(self.after_s)
            raise ConnectionFailed("cut")
        return "all of it"


def test_a_cut_after_a_long_while_is_tried_again_like_one_at_once() -> None:
    assert persistent(Way(1, 0.0)) == "all of it"
    assert persistent(Way(1, 0.5)) == "all of it"
    assert persistent(Way(3, 0.4)) == "all of it"


def test_nobody_tries_for_ever() -> None:
    for after_s in (0.0, 0.35):
        way = Way(1000, after_s)
        with pytest.raises(ConnectionFailed):
            persistent(way)
        assert 1 < way.tries < 10
