"""`pai copy` and its neighbours, as a person types them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.external_services import missing
from support.storage_fixture import StorageWorkspace, tree_of

BOTH_WAYS = pytest.mark.parametrize("way", [[], ["--http"]], ids=["handed over", "over HTTP"])
LARGE = os.urandom(3 << 20) * 7


@BOTH_WAYS
def test_large_file_round_trip(workspace: StorageWorkspace, way: list[str]) -> None:
    source = workspace.write("big.bin", LARGE)
    os.utime(source, ns=(10**18, 10**18 + 123456789))
    source.chmod(0o755)
    workspace.ok("copy", *way, "big.bin", f"{workspace.remote}/big.bin")
    info = workspace.json("getinfo", f"{workspace.remote}/big.bin")
    assert (info["size"], info["mtime"], info["permission"]) == (len(LARGE), 10**12 + 123, "755")
    workspace.ok("copy", *way, f"{workspace.remote}/big.bin", "back.bin")
    back = workspace.local / "back.bin"
    assert back.read_bytes() == LARGE
    assert back.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert back.stat().st_mode & 0o777 == 0o755
    assert sorted(os.listdir(workspace.local)) == ["back.bin", "big.bin"]


@BOTH_WAYS
@pytest.mark.parametrize("moment", [0, -1_500_000_000, 10**18], ids=["1970", "before 1970", "2001"])
def test_modification_time_is_kept_and_the_file_copied_once(
    workspace: StorageWorkspace, way: list[str], moment: int
) -> None:
    for name, size in (("d/large", 5 << 20), ("d/small", 5)):
        os.utime(workspace.write(name, LARGE[:size]), ns=(moment, moment))
    workspace.ok("copy", *way, "d", f"{workspace.remote}/d")
    assert workspace.json("sync", *way, "d", f"{workspace.remote}/d")["newFiles"] == 0
    workspace.ok("copy", *way, f"{workspace.remote}/d", "back")
    assert [(workspace.local / "back" / name).stat().st_mtime_ns for name in ("large", "small")] == [
        moment
    ] * 2


@BOTH_WAYS
def test_file_with_a_time_beyond_2262_is_copied(workspace: StorageWorkspace, way: list[str]) -> None:
    os.utime(workspace.write("d/late", b"late"), (15e9, 15e9))  # the year 2445
    workspace.write("d/other", b"other")
    workspace.ok("copy", *way, "d", f"{workspace.remote}/d")
    workspace.ok("copy", *way, f"{workspace.remote}/d", "back")
    assert tree_of(workspace.local / "back") == tree_of(workspace.local / "d")


@BOTH_WAYS
def test_folder_round_trip(workspace: StorageWorkspace, way: list[str]) -> None:
    for i in range(40):
        workspace.write(f"data/part{i % 4}/file {i} ü.txt", f"content {i}" * i)
    workspace.write("data/large", LARGE[: 5 << 20])
    (workspace.local / "data/empty/inside").mkdir(parents=True)
    said = workspace.pai("copy", *way, "data", workspace.remote)
    assert said.status == 0 and said.err.startswith("41 files, 5.0 MB, all new")
    workspace.ok("copy", *way, f"{workspace.remote}/data", "back")
    assert tree_of(workspace.local / "back") == tree_of(workspace.local / "data")
    assert (workspace.local / "back/empty/inside").is_dir()


def test_target_path_is_that_of_cp(workspace: StorageWorkspace) -> None:
    workspace.write("f", b"1")
    workspace.write("d/g", b"2")
    workspace.ok("copy", "f", f"{workspace.remote}/new")  # does not exist: becomes the copy
    workspace.ok("copy", "f", f"{workspace.remote}/made/")  # ends in a slash: receives it
    workspace.ok("makedir", f"{workspace.remote}/folder")
    workspace.ok("copy", "f", f"{workspace.remote}/folder")  # exists: receives it
    workspace.ok("copy", "d", f"{workspace.remote}/tree")
    workspace.ok("copy", "d", f"{workspace.remote}/folder")
    workspace.ok("copy", "f", "d", f"{workspace.remote}/several")
    assert workspace.names() == [
        "folder/d/g",
        "folder/f",
        "made/f",
        "new",
        "several/d/g",
        "several/f",
        "tree/g",
    ]


def test_dot_copies_the_contents_of_a_folder(workspace: StorageWorkspace) -> None:
    """Like cp with a source that ends in a dot, whether the target exists or not."""
    workspace.write("d/e/f", b"1")
    for source in (f"{workspace.local}/d/.", "d/./", "d/e/.."):
        for target in ("new", "new", "new/", "made/"):
            workspace.ok("copy", source, f"{workspace.remote}/{target}")
        assert workspace.names() == ["made/e/f", "new/e/f"]
        workspace.ok("remove", "-y", f"{workspace.remote}/new", f"{workspace.remote}/made")
    workspace.ok("copy", "d", workspace.remote)
    workspace.write("back/mine")
    workspace.ok("copy", f"{workspace.remote}/d/.", "back")
    assert sorted(tree_of(workspace.local / "back")) == ["e/f", "mine"]


def test_second_copy_sends_only_changes(workspace: StorageWorkspace) -> None:
    workspace.write("d/old", b"old" * 100, mtime=1e9)
    workspace.write("d/changed", b"one", mtime=1e9)
    workspace.ok("copy", "d", f"{workspace.remote}/")
    workspace.write("d/changed", b"two", mtime=1.1e9)
    workspace.write("d/new", b"three")
    again = workspace.json("copy", "d", f"{workspace.remote}/")
    assert (again["files"], again["newFiles"], again["newBytes"]) == (3, 2, 8)
    assert workspace.read("d/changed") == b"two"
    assert workspace.pai("copy", "d", f"{workspace.remote}/").err == "3 files, 308 B, nothing new\n"


def test_ignored_files_are_skipped_and_listed(workspace: StorageWorkspace) -> None:
    workspace.write("p/.gitignore", "*.log\n/out/\n!keep.log\n")
    workspace.write("p/a.log", b"x" * 2048)
    workspace.write("p/keep.log")
    workspace.write("p/out/result", b"x" * 4096)
    workspace.write("p/.git/objects", b"x" * 10240)
    workspace.write("p/main.py")
    done = workspace.pai("copy", "p", f"{workspace.remote}/")
    assert "skipped .git 10 kB, out 4.0 kB, a.log 2.0 kB" in done.err
    assert workspace.names("p") == ["p/.gitignore", "p/keep.log", "p/main.py"]
    workspace.write("p/.paiignore", "main.py\n")
    workspace.ok("copy", "p", f"{workspace.remote}/q")
    assert workspace.names("q") == ["q/.gitignore", "q/.paiignore", "q/a.log", "q/keep.log", "q/out/result"]
    workspace.ok("copy", "--no-ignore", "p", f"{workspace.remote}/r")
    assert len(workspace.names("r")) == 7


def test_copy_from_stdin_and_to_stdout(workspace: StorageWorkspace) -> None:
    workspace.ok("copy", "-", f"{workspace.remote}/said", stdin="hello\n")
    assert workspace.ok("copy", f"{workspace.remote}/said", "-") == "hello\n"
    workspace.write("big", LARGE)
    done = workspace.person.sh(
        f"cat big | pai copy - {workspace.remote}/big && pai copy {workspace.remote}/big - | cmp - big"
    )
    assert done.status == 0, done
    assert workspace.pai("copy", "-", f"{workspace.remote}/").status == 2


def test_copy_between_two_remote_paths(workspace: StorageWorkspace) -> None:
    workspace.write("d/small", b"small")
    workspace.write("d/large", LARGE[: 3 << 20])
    workspace.ok("copy", "d", f"{workspace.remote}/a")
    workspace.ok("copy", f"{workspace.remote}/a", f"{workspace.remote}/b")
    workspace.ok("copy", "--http", f"{workspace.remote}/a", f"{workspace.remote}/c")
    assert workspace.names("b") == ["b/large", "b/small"]
    assert workspace.read("c/large") == LARGE[: 3 << 20]


def test_user_name_variable_and_storage_zero(workspace: StorageWorkspace) -> None:
    workspace.write("f", b"1")
    rest = workspace.path.removeprefix(f"/user/{workspace.user}")
    workspace.ok("copy", "f", "pai://team/0/user/${PAI_USER_NAME}" + rest + "/f")
    assert workspace.names() == ["f"]
    name = next(each["name"] for each in workspace.json("list-storages", "team") if each["selected"])
    assert workspace.ok("listdir", f"pai://team/{name}{workspace.path}") == "f\n"


def test_sync_copies_differences_and_deletes_only_with_delete(workspace: StorageWorkspace) -> None:
    workspace.write("d/a", b"1")
    workspace.write("d/sub/b", b"2")
    workspace.ok("sync", "d", f"{workspace.remote}/d")
    (workspace.local / "d/sub/b").unlink()
    (workspace.local / "d/sub").rmdir()
    workspace.write("d/c", b"3")
    workspace.ok("sync", "d", f"{workspace.remote}/d")
    assert workspace.names("d") == ["d/a", "d/c", "d/sub/b"]
    tried = workspace.pai("sync", "--delete", "--dry-run", "d", f"{workspace.remote}/d")
    assert tried.out == "delete  sub\n" and "Nothing was done" in tried.err
    assert workspace.names("d") == ["d/a", "d/c", "d/sub/b"]
    workspace.ok("sync", "--delete", "d", f"{workspace.remote}/d")
    assert workspace.names("d") == ["d/a", "d/c"]
    workspace.write("d2/a/now a folder", b"4")
    workspace.ok("sync", "--delete", "d2", f"{workspace.remote}/d")
    assert workspace.names("d") == ["d/a/now a folder"]


def test_sync_reports_every_deletion(workspace: StorageWorkspace) -> None:
    workspace.write("new/a/inside", b"1")
    workspace.write("new/b", b"2")
    workspace.write("old/a", b"3")
    workspace.write("old/b/inside", b"4")
    workspace.write("old/c", b"5")
    workspace.ok("copy", "old", f"{workspace.remote}/d")
    assert sorted(workspace.json("sync", "--delete", "new", f"{workspace.remote}/d")["toDelete"]) == [
        "a",
        "b",
        "c",
    ]
    assert workspace.names("d") == ["d/a/inside", "d/b"]


def test_sync_downloads_a_folder(workspace: StorageWorkspace) -> None:
    workspace.write("d/a", b"1")
    workspace.write("d/sub/b", b"2")
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    workspace.write("mine/extra")
    workspace.ok("sync", "--delete", f"{workspace.remote}/d", "mine")
    assert tree_of(workspace.local / "mine") == {"a": b"1", "sub/b": b"2"}


def test_listdir_and_getinfo(workspace: StorageWorkspace) -> None:
    workspace.write("d/sub/b", b"x" * 2000)
    workspace.write("d/a", b"1")
    workspace.ok("copy", "d", f"{workspace.remote}/")
    assert workspace.ok("listdir", f"{workspace.remote}/d") == "a\nsub/\n"
    assert workspace.ok("list-dir", "-R", f"{workspace.remote}/d") == "a\nsub/\nsub/b\n"
    long = workspace.ok("listdir", "-l", "-R", "-H", f"{workspace.remote}/d").splitlines()
    assert long[0].split() == ["MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"]
    assert long[3].split()[:5] == ["-rw-r--r--", workspace.user, workspace.user, "2.0", "kB"]
    assert workspace.ok("listdir", "d") == "a\nsub/\n"
    assert workspace.json("getinfo", f"{workspace.remote}/d/a")["type"] == "file"
    used = workspace.json("disk-usage", f"{workspace.remote}/d")
    assert (used["files"], used["bytes"], used["parts"][0]["name"]) == (2, 2001, "sub")
    assert workspace.ok("disk-usage", "-H", f"{workspace.remote}/d").splitlines()[-1].split()[:2] == [
        "2.0",
        "kB",
    ]


def test_recursive_listing_follows_no_links(workspace: StorageWorkspace) -> None:
    workspace.write("d/sub/f", b"x")
    (workspace.local / "d/sub/back").symlink_to("..")
    (workspace.local / "d/again").symlink_to("sub")
    assert workspace.ok("listdir", "-R", "d") == "again/\nsub/\nsub/back/\nsub/f\n"


def test_url_without_a_storage_lists_the_storages(workspace: StorageWorkspace) -> None:
    names = [each["name"] for each in workspace.json("list-storages", "team")]
    for address in ("pai://team", "pai://team/"):
        assert workspace.ok("listdir", address) == "".join(f"{name}/\n" for name in names)
    assert [each["path"] for each in workspace.json("listdir", "pai://team")] == [
        f"pai://team/{n}" for n in names
    ]
    assert workspace.pai("listdir", "pai://nobody").status == 2
    assert workspace.pai("listdir", "pai://").status == 2


def test_json_output_of_makedir_and_remove(workspace: StorageWorkspace) -> None:
    made = workspace.json("makedir", f"{workspace.remote}/a", workspace.remote)
    assert made == [{"path": f"{workspace.path}/a", "made": True}, {"path": workspace.path, "made": False}]
    (gone,) = workspace.json("remove", f"{workspace.remote}/a")
    assert (gone["path"], gone["type"]) == (f"{workspace.path}/a", "directory")


def test_makedir_and_remove(workspace: StorageWorkspace) -> None:
    workspace.ok("makedirs", f"{workspace.remote}/a/b/c", f"{workspace.remote}/x")
    workspace.ok("makedir", f"{workspace.remote}/a/b/c")
    assert workspace.ok("listdir", workspace.remote) == "a/\nx/\n"
    # Its contents are removed with it; only at a terminal the command asks.
    workspace.ok("delete", f"{workspace.remote}/a", f"{workspace.remote}/x")
    assert workspace.ok("listdir", workspace.remote) == ""


def test_local_storage_works_like_any_other(workspace: StorageWorkspace) -> None:
    (workspace.local / "mounted").mkdir()
    workspace.write("d/f", b"1")
    workspace.ok(
        "add-storage-cluster", "-a", "disks", "--type", "mount", "--path", str(workspace.local / "mounted")
    )
    try:
        workspace.ok("copy", "d", "pai://disks/0/d")
        assert workspace.ok("listdir", "pai://disks/mount/d") == "f\n"
        workspace.ok("copy", "pai://disks/0/d", f"{workspace.remote}/d")
        assert workspace.names() == ["d/f"]
        workspace.ok("remove", "pai://disks/0/d")
        assert list((workspace.local / "mounted").iterdir()) == []
    finally:
        workspace.ok("delete-cluster", "disks")


def test_storage_zero_is_the_selected_storage(workspace: StorageWorkspace) -> None:
    name = workspace.json("list-storages", "team")[0]["name"]
    workspace.ok("select-storage", "-a", "team", "--storage-name", name, "--workspace", "vision")
    kept = workspace.person.home / ".openpai/clusters.yaml"
    assert f"storage_name: {name}" in kept.read_text() and f"/{workspace.user}/vision" in kept.read_text()
    assert "vision" in workspace.ok("listdir", f"pai://team/0/{workspace.user}")
    bad = workspace.pai("select-storage", "-a", "team", "--storage-name", "nope")
    assert bad.status == 2 and "'nope'" in bad.err


def test_makedir_below_a_file_fails(workspace: StorageWorkspace) -> None:
    workspace.ok("copy", str(workspace.write("f")), f"{workspace.remote}/f")
    done = workspace.pai("makedirs", f"{workspace.remote}/f/below")
    assert done.status == 2
    assert done.err.strip().endswith("/f/below: a part of this path is a file and not a folder.")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_neither_copied_nor_replaced(workspace: StorageWorkspace, kind: str) -> None:
    path = workspace.local / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif os.geteuid() == 0:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        missing("root, who alone makes devices,")
    workspace.write("f", b"x")
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    for words in ((kind, f"{workspace.remote}/p"), (f"{workspace.remote}/f", kind), ("f", kind)):
        done = workspace.pai("copy", *words)
        assert done.status == 2 and f"{kind} is neither a file nor a folder" in done.err, done
    assert not path.is_file()
    assert workspace.names() == ["f"]


def test_copy_to_a_link_writes_its_target(workspace: StorageWorkspace) -> None:
    workspace.write("f", b"new")
    workspace.ok("copy", "f", f"{workspace.remote}/f")
    workspace.write("real", b"old")
    (workspace.local / "link").symlink_to("real")
    workspace.ok("copy", f"{workspace.remote}/f", "link")
    assert (workspace.local / "link").is_symlink()
    assert (workspace.local / "real").read_bytes() == b"new"


@pytest.mark.parametrize("source", ["there", "here"])
@pytest.mark.parametrize("size", [5, 5 << 20])
def test_links_inside_the_target_are_not_followed(
    workspace: StorageWorkspace, source: str, size: int
) -> None:
    """Like ``cp -r`` and ``rsync``."""
    workspace.write("d/sub/f", LARGE[:size])
    workspace.write("d/file", LARGE[:size])
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    place = f"{workspace.remote}/d" if source == "there" else "d"
    outside, target = workspace.local / "outside", workspace.local / "target"
    for each in (outside, target / "kept"):
        each.mkdir(parents=True)
    for name in ("sub", "file", "mine"):
        (target / name).symlink_to(outside)
    refused = workspace.pai("sync", place, "target")
    assert refused.status != 0 and "either of them a link: sub, file." in refused.err.replace(
        "file, sub", "sub, file"
    )
    (workspace.local / "into").mkdir()
    (workspace.local / "into/d").symlink_to(outside)
    refused = workspace.pai("copy", place, "into")
    assert refused.status != 0 and "into/d is a link" in refused.err and refused.err.count("\n") == 2
    assert not list(outside.iterdir())
    workspace.ok("sync", "--delete", place, "target")
    assert not list(outside.iterdir()) and not (target / "kept").exists()
    assert tree_of(target) == tree_of(workspace.local / "d")
    # A sync does not delete what is never copied; a link named by the user is followed.
    assert (target / "mine").readlink() == outside
    workspace.ok("sync", place, "into/d")
    assert tree_of(outside) == tree_of(workspace.local / "d")


def test_link_to_itself_is_skipped_and_reported(workspace: StorageWorkspace) -> None:
    workspace.write("d/f", b"x")
    (workspace.local / "d/loop").symlink_to("loop")
    done = workspace.pai("copy", "d", f"{workspace.remote}/d")
    assert done.status == 0 and "loop (a link to nothing)" in done.err, done
    assert workspace.names("d") == ["d/f"]


@pytest.mark.slow
@BOTH_WAYS
def test_concurrent_copies_to_one_target_succeed(workspace: StorageWorkspace, way: list[str]) -> None:
    """Like tasks of a job that download the same data to one machine."""
    for number in range(300):
        workspace.write(f"d/{number}", os.urandom(2000))
    workspace.write("d/data.tar", os.urandom(30 << 20))
    workspace.write("d/data.tar.gz", os.urandom(30 << 20))
    for words in (("d", f"{workspace.remote}/"), (f"{workspace.remote}/d", "back/")):
        (workspace.local / "back").mkdir(exist_ok=True)
        with ThreadPoolExecutor(3) as pool:
            copies = [pool.submit(workspace.pai, "copy", *way, *words) for _ in range(3)]
        assert [copy.result().status for copy in copies] == [0, 0, 0], [copy.result().err for copy in copies]
    assert tree_of(workspace.local / "back/d") == tree_of(workspace.local / "d")


def test_name_with_a_line_break(workspace: StorageWorkspace) -> None:
    workspace.write("two\nlines", b"x")
    workspace.ok("copy", "two\nlines", f"{workspace.remote}/")
    assert workspace.json("getinfo", f"{workspace.remote}/two\nlines")["size"] == 1
    workspace.ok("copy", f"{workspace.remote}/two\nlines", "back")
    workspace.ok("remove", f"{workspace.remote}/two\nlines")
    assert workspace.names() == []


def _texts(value: object) -> list[object]:
    if not isinstance(value, (list, dict)):
        return [value]
    return [text for each in (value.values() if isinstance(value, dict) else value) for text in _texts(each)]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_json_output_with_non_utf8_names(workspace: StorageWorkspace, locale: str) -> None:
    name = os.fsdecode(b"caf\xe9 \xc3\xbc")
    (workspace.local / "d").mkdir()
    (workspace.local / "d" / name).write_bytes(b"x")
    for words in (["listdir", "d"], ["disk-usage", "d"], ["sync", "-n", "d", "e"], ["getinfo", f"d/{name}"]):
        with_bytes = subprocess.run(
            ["pai", *words, "-o", "json"],
            cwd=workspace.local,
            env=workspace.person.env(LC_ALL=locale),
            stdout=subprocess.PIPE,
            check=True,
        )
        assert name in _texts(json.loads(with_bytes.stdout.decode()))


def test_failures_are_counted_as_files_and_folders(workspace: StorageWorkspace) -> None:
    workspace.write("d/a", b"x")
    workspace.write(f"d/{'long' * 50}/b", b"x")
    workspace.ok("copy", "d", f"{workspace.remote}/d")
    far = "target"
    while len(str(workspace.local)) + len(far) < 3900:  # no path may be longer than 4096 bytes
        far += "/" + "far" * 10
    workspace.write(f"{far}/a", b"old")
    (workspace.local / far / ".a.pai-part").symlink_to("/proc/nowhere")  # nothing can be written there
    done = workspace.pai("sync", f"{workspace.remote}/d", far)
    assert done.status == 1, done
    assert (
        "2 of 2 files and 1 folder could not be copied" in done.err and "All others arrived" not in done.err
    )
