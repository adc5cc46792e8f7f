"""Memory of a server on machines and in cgroups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from paicluster.server.available_memory import available_memory_mb


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemFree:  1 kB\n")
    return tmp_path / "proc"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_cgroups_it_is_the_machines(proc: Path, tmp_path: Path) -> None:
    assert available_memory_mb(proc, tmp_path / "none") == 16384
    (proc / "self/cgroup").write_text("0::/a.slice/b.service\n")
    assert available_memory_mb(proc, tmp_path / "none") == 16384


def test_lowest_limit_on_the_way_to_the_top_holds(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("0::/a.slice/b.service\n")
    write(tmp_path / "cgroup/a.slice/memory.max", f"{1 << 30}\n")
    write(tmp_path / "cgroup/a.slice/b.service/memory.max", "max\n")
    assert available_memory_mb(proc, tmp_path / "cgroup") == 1024


def test_container_has_its_own_limit_at_the_top(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("0::/\n")
    write(tmp_path / "cgroup/memory.max", f"{512 << 20}\n")
    assert available_memory_mb(proc, tmp_path / "cgroup") == 512


def test_version_1_has_a_hierarchy_for_memory(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("8:pids:/x\n4:memory:/x/y\n0::/\n")
    write(tmp_path / "cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path / "cgroup/memory/x/memory.limit_in_bytes", f"{2 << 30}\n")
    write(tmp_path / "cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n")
    assert available_memory_mb(proc, tmp_path / "cgroup") == 2048
