"""Schedules of the chaos campaign; the campaign itself is `make chaos`."""

from __future__ import annotations

from chaos.schedule import Fault, make_schedule, parse_schedule, shortest_failing, with_upgrade


def test_schedule_depends_on_the_seed_alone() -> None:
    assert make_schedule(7, 600) == make_schedule(7, 600) != make_schedule(8, 600)
    assert make_schedule(7, 60) == [fault for fault in make_schedule(7, 600) if fault.at_s < 60]


def test_printed_schedule_is_read_again() -> None:
    faults = make_schedule(7, 600)
    assert parse_schedule(" ".join(map(str, faults))) == faults


def test_upgrade_is_in_the_middle_of_the_schedule() -> None:
    faults = with_upgrade(7, make_schedule(7, 600), 600)
    (upgrade,) = set(faults) - set(make_schedule(7, 600))
    assert upgrade.kind == "upgrade-server" and 200 <= upgrade.at_s <= 400
    assert faults == sorted(faults, key=lambda fault: fault.at_s)


def test_faults_without_effect_are_left_out() -> None:
    faults = make_schedule(7, 100)
    needed = {faults[2], faults[-1]}

    def fails(tried: list[Fault]) -> bool:
        return needed <= set(tried)

    assert shortest_failing(faults, fails, 200) == [faults[2], faults[-1]]


def test_search_for_the_shortest_schedule_is_bounded() -> None:
    runs: list[list[Fault]] = []
    faults = make_schedule(7, 100)

    def never_fails(tried: list[Fault]) -> bool:
        runs.append(tried)
        return False

    assert shortest_failing(faults, never_fails, 5) == faults
    assert len(runs) == 5
