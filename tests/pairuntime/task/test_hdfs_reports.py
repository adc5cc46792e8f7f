"""`hdfs dfs -du`, `-count`, `-stat`, `-tail` and `-getmerge` in a task, as FsShell has them; absent hosts."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pairuntime.task import hdfs_reports
from pairuntime.task.webhdfs import Storage, WebHdfsError
from support.fuse import fuse_fixture  # noqa: F401
from support.ports import free_port
from support.server_fixture import Cluster, job

SETUP = """
mkdir -p d/sub && printf 'one\\n' > d/a && printf 'two\\n' > d/b && : > d/empty
head -c 2048 /dev/zero > d/sub/k && hdfs dfs -rm -r -f rep > /dev/null && hdfs dfs -put d rep
"""


def run(cluster: Cluster, name: str, script: str) -> tuple[list[str], str]:
    """Lines of the output of a script in a task that has the folder `rep` in its home, and its errors."""
    spec: dict[str, Any] = job(name, "set +e\n" + SETUP + script + "\ntrue")
    assert cluster.run(spec)["state"] == "SUCCEEDED", cluster.log_of(name)
    errors = cluster.log_of(name, "stderr").decode()
    return cluster.log_of(name, "stdout").decode().splitlines(), errors


def test_du_shows_sizes_of_entries_or_their_sum(cluster: Cluster) -> None:
    home = f"/user/{cluster.user}"
    lines, errors = run(
        cluster,
        "reports-du",
        f"hdfs dfs -du {home}/rep; hdfs dfs -du -s rep; "
        f"hdfs dfs -du -s -h $PAI_DEFAULT_FS_URI{home}/rep/sub; hdfs dfs -du -v -s rep/a; "
        "hdfs dfs -du none rep/a; echo $?; hdfs dfs -du -z rep; echo $?",
    )
    sizes = [line.split() for line in lines[:4]]
    assert [(one[0], one[2]) for one in sizes] == [
        *(("4", f"{home}/rep/{name}") for name in "ab"),
        ("0", f"{home}/rep/empty"),
        ("2048", f"{home}/rep/sub"),
    ]
    # Columns are aligned, with two blanks between them; the first one is a number for scripts that cut it.
    assert lines[0].startswith("4     ") and lines[3].startswith("2048  ")
    assert lines[4].split(" ")[0] == "2056" and lines[4].endswith("  rep")
    assert lines[5].startswith("2 K  ") and lines[5].endswith(f"{home}/rep/sub") and "hdfs://" in lines[5]
    assert lines[6].split() == ["SIZE", "DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS", "FULL_PATH_NAME"]
    assert lines[7].split()[::2] == ["4", "rep/a"] and lines[8].split()[::2] == ["4", "rep/a"]
    assert lines[9:] == ["1", "255"]
    assert "du: `none': No such file or directory\n" in errors and "-du: Illegal option -z" in errors


def test_count_has_folders_files_and_bytes_and_quotas(cluster: Cluster) -> None:
    lines, _ = run(
        cluster,
        "reports-count",
        "hdfs dfs -count rep; hdfs dfs -count -v -h rep/sub; hdfs dfs -count -q -v rep/a; "
        "hdfs dfs -count; echo $?",
    )
    assert lines[0] == "           2            4               2056 rep"
    assert lines[1] == "   DIR_COUNT   FILE_COUNT       CONTENT_SIZE PATHNAME"
    assert lines[2] == "           1            1                2 K rep/sub"
    quotas = "       QUOTA       REM_QUOTA     SPACE_QUOTA REM_SPACE_QUOTA "
    assert lines[3] == quotas + "   DIR_COUNT   FILE_COUNT       CONTENT_SIZE PATHNAME"
    none = "        none             inf            none             inf "
    assert lines[4] == none + "           0            1                  4 rep/a"
    assert lines[5] == "255"


def test_stat_prints_what_its_format_names(cluster: Cluster) -> None:
    before = time.time()
    lines, errors = run(
        cluster,
        "reports-stat",
        "hdfs dfs -stat '%F %a %A %b %n %u 100%% %z%' rep/a rep; hdfs dfs -stat '%Y' rep/a; "
        "hdfs dfs -stat rep/a; hdfs dfs -stat %n none 'rep/?'; echo $?",
    )
    user = cluster.user
    assert lines[0] == f"regular file 644 rw-r--r-- 4 a {user} 100% z%"
    assert lines[1] == f"directory 755 rwxr-xr-x 0 rep {user} 100% z%"
    changed = int(lines[2]) / 1000
    assert before - 1 <= changed <= time.time() + 1
    assert lines[3] == time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(changed))
    assert lines[4:] == ["a", "b", "1"] and "stat: `none': No such file or directory" in errors


def test_tail_prints_the_last_kilobyte_and_follows(cluster: Cluster) -> None:
    lines, errors = run(
        cluster,
        "reports-tail",
        "seq 1000 > s; hdfs dfs -put -f s rep/s\n"
        "hdfs dfs -tail rep/s | wc -c; hdfs dfs -tail rep/s | tail -1; hdfs dfs -tail rep/empty; "
        "hdfs dfs -tail rep; echo $?\n"
        "hdfs dfs -tail -f -s 100 rep/a > followed & follower=$!\n"
        "until grep -q one followed; do sleep 0.05; done\n"
        "printf 'one\\nmore\\n' > a2; hdfs dfs -put -f a2 rep/a\n"
        "until grep -q more followed; do sleep 0.05; done; kill $follower; cat followed\n",
    )
    assert lines == ["1024", "1000", "1", "one", "more"]
    assert "tail: `rep': Is a directory" in errors


def test_getmerge_joins_the_files_of_folders(cluster: Cluster) -> None:
    lines, errors = run(
        cluster,
        "reports-merge",
        "hdfs dfs -getmerge rep merged && cat merged\n"
        "hdfs dfs -getmerge -nl rep/a rep/empty merged; wc -l < merged\n"
        "hdfs dfs -getmerge -nl -skip-empty-file rep merged; wc -l < merged\n"
        "hdfs dfs -getmerge rep/a none kept; echo $?; ls kept 2>&1 | wc -l; ls kept",
    )
    assert lines[:2] == ["one", "two"] and lines[2:6] == ["3", "4", "1", "1"]
    assert "getmerge: `none': No such file or directory" in errors


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1 K"), (1536, "1.5 K"), (1048575, "1.0 M"), (3 << 40, "3 T")],
)
def test_human_sizes_are_those_of_hadoop(size: int, text: str) -> None:
    assert hdfs_reports._human(size) == text


# -- hosts that are not there ------------------------------------------------------------------------


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port at which packets of new connections are dropped, as by a firewall: its queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as queued:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = queued.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("kind", ["refused", "silent"])
def test_unreachable_host_is_announced_and_then_reported_in_time(kind: str) -> None:
    said: list[tuple[float, str]] = []
    with silent_port() as silent:
        port = silent if kind == "silent" else free_port()
        start = time.monotonic()
        storage = Storage(
            f"http://127.0.0.1:{port}/webhdfs/v1",
            unreachable_after_s=8.0,
            notify=lambda text: said.append((time.monotonic() - start, text)),
        )
        with pytest.raises(WebHdfsError, match=rf"127\.0\.0\.1:{port} cannot be reached: ") as raised:
            storage.status("/")
        took = time.monotonic() - start
    assert raised.value.is_unreachable and took < 10
    [(when, sentence)] = said
    assert when < took and "does not answer" in sentence and "trying again, for 8 seconds in all" in sentence


@pytest.mark.slow
@pytest.mark.usefixtures("fuse")
def test_commands_in_a_task_report_an_unreachable_host_within_15_seconds(cluster: Cluster) -> None:
    address = f"hdfs://127.0.0.1:{free_port()}/x"
    script = (
        f"set +e; mkdir m; (time -p hdfs dfs -ls {address}) 2> 1 & "
        f"(time -p hdfs dfs -du {address} /) > du 2> 2 & "
        f"(time -p hdfs-mount {address} m) 2> 3; wait; cat 1 2 3"
    )
    spec: dict[str, Any] = job("unreachable", script)
    assert cluster.run(spec)["state"] == "SUCCEEDED", cluster.log_of("unreachable")
    text = cluster.log_of("unreachable").decode()
    times = [float(line.split()[1]) for line in text.splitlines() if line.startswith("real ")]
    assert len(times) == 3 and max(times) < 15, text
    assert text.count("trying again, for 15 seconds in all") == 3, text
    assert text.count("cannot be reached: Connection refused") == 3, text
