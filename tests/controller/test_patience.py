"""Who gets nothing for too long."""

from __future__ import annotations

from paicluster.controller.patience import Patience


def test_a_user_is_overdue_when_nothing_of_his_started_for_too_long() -> None:
    patience = Patience(too_long_s=10)
    both = [("default", "ann"), ("default", "bob")]
    assert not patience.overdue(both, now=100)
    patience.started("default", "bob")
    assert not patience.overdue(both, now=105)
    assert patience.overdue(both, now=111) == {("default", "ann")}
    patience.started("default", "ann")
    assert not patience.overdue(both, now=112)


def test_who_does_not_wait_any_more_begins_anew() -> None:
    patience = Patience(too_long_s=10)
    patience.overdue([("lab", "ann")], now=0)
    patience.overdue([], now=5)
    assert not patience.overdue([("lab", "ann")], now=20)
