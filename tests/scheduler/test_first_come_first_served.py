"""First come, first served: whole gangs, never more than there is, nobody passes who waits for room."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paicluster.scheduler.firstcome import JobNeed, NodeRoom, RoleNeed, Start, Wait, plan


@st.composite
def _nodes(draw: st.DrawFn) -> list[NodeRoom]:
    nodes = []
    for number in range(draw(st.integers(0, 3))):
        cpu, memory, gpu = draw(st.integers(0, 8)), draw(st.integers(0, 8)), draw(st.integers(0, 4))
        free_gpus = draw(st.sets(st.sampled_from(range(gpu)), max_size=gpu)) if gpu else set()
        nodes.append(
            NodeRoom(
                f"node{number}",
                cpu,
                memory,
                gpu,
                draw(st.integers(0, cpu)),
                draw(st.integers(0, memory)),
                tuple(sorted(free_gpus)),
            )
        )
    return nodes


_role = st.builds(
    RoleNeed,
    role=st.sampled_from(["worker", "server"]),
    instances=st.integers(1, 4),
    cpu=st.integers(0, 4),
    memory_mb=st.integers(0, 4),
    gpu=st.integers(0, 3),
)


@st.composite
def _waiting(draw: st.DrawFn) -> list[JobNeed]:
    roles = draw(st.lists(st.lists(_role, min_size=1, max_size=2, unique_by=lambda r: r.role), max_size=6))
    return [JobNeed(number, tuple(role)) for number, role in enumerate(roles, start=10)]


@given(_nodes(), _waiting())
def test_no_node_is_ever_given_more_than_it_has_free(nodes: list[NodeRoom], waiting: list[JobNeed]) -> None:
    needs = {(job.job_id, role.role): role for job in waiting for role in job.roles}
    cpu: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    gpus: dict[str, list[int]] = {node.name: [] for node in nodes}
    for decision in plan(nodes, waiting):
        if isinstance(decision, Start):
            for seat in decision.seats:
                need = needs[decision.job_id, seat.role]
                cpu[seat.node] += need.cpu
                memory[seat.node] += need.memory_mb
                gpus[seat.node].extend(seat.gpus)
                assert len(seat.gpus) == need.gpu
    for node in nodes:
        assert cpu[node.name] <= node.free_cpu
        assert memory[node.name] <= node.free_memory_mb
        assert len(set(gpus[node.name])) == len(gpus[node.name])
        assert set(gpus[node.name]) <= set(node.free_gpus)


@given(_nodes(), _waiting())
def test_a_gang_starts_whole(nodes: list[NodeRoom], waiting: list[JobNeed]) -> None:
    by_id = {job.job_id: job for job in waiting}
    for decision in plan(nodes, waiting):
        if isinstance(decision, Start):
            seats = sorted((seat.role, seat.index) for seat in decision.seats)
            wanted = sorted((r.role, n) for r in by_id[decision.job_id].roles for n in range(r.instances))
            assert seats == wanted


@given(_nodes(), _waiting())
def test_decisions_come_in_order_and_end_at_the_first_who_waits_for_room(
    nodes: list[NodeRoom], waiting: list[JobNeed]
) -> None:
    decisions = plan(nodes, waiting)
    assert [d.job_id for d in decisions] == [job.job_id for job in waiting][: len(decisions)]
    held_up = [isinstance(d, Wait) and not d.never for d in decisions]
    assert not any(held_up[:-1])
    if len(decisions) < len(waiting):
        assert held_up[-1]


@given(_nodes(), _waiting())
def test_who_waits_says_why(nodes: list[NodeRoom], waiting: list[JobNeed]) -> None:
    for decision in plan(nodes, waiting):
        if isinstance(decision, Wait):
            assert decision.reason.startswith(f"0/{len(nodes)} nodes are available")


@given(_nodes(), _waiting())
def test_who_can_never_fit_holds_up_nobody(nodes: list[NodeRoom], waiting: list[JobNeed]) -> None:
    decisions = plan(nodes, waiting)
    never = {d.job_id for d in decisions if isinstance(d, Wait) and d.never}
    without = plan(nodes, [job for job in waiting if job.job_id not in never])
    assert [d for d in decisions if d.job_id not in never] == without


@given(_nodes(), _waiting())
def test_on_the_empty_cluster_the_first_either_starts_or_never_will(
    nodes: list[NodeRoom], waiting: list[JobNeed]
) -> None:
    empty = [
        NodeRoom(n.name, n.cpu, n.memory_mb, n.gpu, n.cpu, n.memory_mb, tuple(range(n.gpu))) for n in nodes
    ]
    for job in waiting:
        (decision,) = plan(empty, [job])
        assert isinstance(decision, Start) or decision.never


def test_the_reason_counts_what_each_node_lacks() -> None:
    nodes = [NodeRoom("a", 4, 100, 0, 1, 100, ()), NodeRoom("b", 4, 100, 1, 0, 10, (0,))]
    need = JobNeed(1, (RoleNeed("worker", 1, cpu=2, memory_mb=50, gpu=0),))
    (decision,) = plan(nodes, [need])
    assert decision == Wait(
        1, "0/2 nodes are available: 2 Insufficient cpu, 1 Insufficient memory.", never=False
    )


def test_without_nodes_nothing_fits() -> None:
    (decision,) = plan([], [JobNeed(1, (RoleNeed("worker", 1, 1, 1, 0),))])
    assert decision == Wait(1, "0/0 nodes are available.", never=True)
