"""`pai copy` and its neighbours, as a person types them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.external_services import missing
from support.storage_fixture import Desk, tree_of

BOTH_WAYS = pytest.mark.parametrize("way", [[], ["--http"]], ids=["handed over", "over HTTP"])
LARGE = os.urandom(3 << 20) * 7


@BOTH_WAYS
def test_a_large_file_goes_there_and_comes_back(desk: Desk, way: list[str]) -> None:
    source = desk.write("big.bin", LARGE)
    os.utime(source, ns=(10**18, 10**18 + 123456789))
    source.chmod(0o755)
    desk.ok("copy", *way, "big.bin", f"{desk.there}/big.bin")
    info = desk.json("getinfo", f"{desk.there}/big.bin")
    assert (info["size"], info["mtime"], info["permission"]) == (len(LARGE), 10**12 + 123, "755")
    desk.ok("copy", *way, f"{desk.there}/big.bin", "back.bin")
    back = desk.here / "back.bin"
    assert back.read_bytes() == LARGE
    assert back.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert back.stat().st_mode & 0o777 == 0o755
    assert sorted(os.listdir(desk.here)) == ["back.bin", "big.bin"]


@BOTH_WAYS
@pytest.mark.parametrize("moment", [0, -1_500_000_000, 10**18], ids=["1970", "before 1970", "2001"])
def test_a_file_of_any_time_keeps_it_and_goes_once(desk: Desk, way: list[str], moment: int) -> None:
    for name, size in (("d/large", 5 << 20), ("d/small", 5)):
        os.utime(desk.write(name, LARGE[:size]), ns=(moment, moment))
    desk.ok("copy", *way, "d", f"{desk.there}/d")
    assert desk.json("sync", *way, "d", f"{desk.there}/d")["newFiles"] == 0
    desk.ok("copy", *way, f"{desk.there}/d", "back")
    assert [(desk.here / "back" / name).stat().st_mtime_ns for name in ("large", "small")] == [moment] * 2


@BOTH_WAYS
def test_a_time_too_late_to_be_told_keeps_no_file_back(desk: Desk, way: list[str]) -> None:
    os.utime(desk.write("d/late", b"late"), (15e9, 15e9))  # the year 2445
    desk.write("d/other", b"other")
    desk.ok("copy", *way, "d", f"{desk.there}/d")
    desk.ok("copy", *way, f"{desk.there}/d", "back")
    assert tree_of(desk.here / "back") == tree_of(desk.here / "d")


@BOTH_WAYS
def test_a_folder_goes_there_and_comes_back(desk: Desk, way: list[str]) -> None:
    for i in range(40):
        desk.write(f"data/part{i % 4}/file {i} ü.txt", f"content {i}" * i)
    desk.write("data/large", LARGE[: 5 << 20])
    (desk.here / "data/empty/inside").mkdir(parents=True)
    said = desk.pai("copy", *way, "data", desk.there)
    assert said.status == 0 and said.err.startswith("41 files, 5.0 MB, all new")
    desk.ok("copy", *way, f"{desk.there}/data", "back")
    assert tree_of(desk.here / "back") == tree_of(desk.here / "data")
    assert (desk.here / "back/empty/inside").is_dir()


def test_copy_lands_where_cp_would_put_it(desk: Desk) -> None:
    desk.write("f", b"1")
    desk.write("d/g", b"2")
    desk.ok("copy", "f", f"{desk.there}/new")  # does not exist: becomes the copy
    desk.ok("copy", "f", f"{desk.there}/made/")  # ends in a slash: receives it
    desk.ok("makedir", f"{desk.there}/folder")
    desk.ok("copy", "f", f"{desk.there}/folder")  # exists: receives it
    desk.ok("copy", "d", f"{desk.there}/tree")
    desk.ok("copy", "d", f"{desk.there}/folder")
    desk.ok("copy", "f", "d", f"{desk.there}/several")
    assert desk.names() == [
        "folder/d/g",
        "folder/f",
        "made/f",
        "new",
        "several/d/g",
        "several/f",
        "tree/g",
    ]


def test_what_a_folder_holds_is_copied_without_its_name(desk: Desk) -> None:
    """As cp does where a source ends in a dot, whether the target is there or not."""
    desk.write("d/e/f", b"1")
    for source in (f"{desk.here}/d/.", "d/./", "d/e/.."):
        for target in ("new", "new", "new/", "made/"):
            desk.ok("copy", source, f"{desk.there}/{target}")
        assert desk.names() == ["made/e/f", "new/e/f"]
        desk.ok("remove", "-y", f"{desk.there}/new", f"{desk.there}/made")
    desk.ok("copy", "d", desk.there)
    desk.write("back/mine")
    desk.ok("copy", f"{desk.there}/d/.", "back")
    assert sorted(tree_of(desk.here / "back")) == ["e/f", "mine"]


def test_a_second_copy_sends_only_what_is_new(desk: Desk) -> None:
    desk.write("d/old", b"old" * 100, mtime=1e9)
    desk.write("d/changed", b"one", mtime=1e9)
    desk.ok("copy", "d", f"{desk.there}/")
    desk.write("d/changed", b"two", mtime=1.1e9)
    desk.write("d/new", b"three")
    again = desk.json("copy", "d", f"{desk.there}/")
    assert (again["files"], again["newFiles"], again["newBytes"]) == (3, 2, 8)
    assert desk.read("d/changed") == b"two"
    assert desk.pai("copy", "d", f"{desk.there}/").err == "3 files, 308 B, nothing new\n"


def test_ignore_files_are_heeded_and_what_stays_is_named(desk: Desk) -> None:
    desk.write("p/.gitignore", "*.log\n/out/\n!keep.log\n")
    desk.write("p/a.log", b"x" * 2048)
    desk.write("p/keep.log")
    desk.write("p/out/result", b"x" * 4096)
    desk.write("p/.git/objects", b"x" * 10240)
    desk.write("p/main.py")
    done = desk.pai("copy", "p", f"{desk.there}/")
    assert "skipped .git 10 kB, out 4.0 kB, a.log 2.0 kB" in done.err
    assert desk.names("p") == ["p/.gitignore", "p/keep.log", "p/main.py"]
    desk.write("p/.paiignore", "main.py\n")
    desk.ok("copy", "p", f"{desk.there}/q")
    assert desk.names("q") == ["q/.gitignore", "q/.paiignore", "q/a.log", "q/keep.log", "q/out/result"]
    desk.ok("copy", "--no-ignore", "p", f"{desk.there}/r")
    assert len(desk.names("r")) == 7


def test_standard_input_and_output_are_places_too(desk: Desk) -> None:
    desk.ok("copy", "-", f"{desk.there}/said", stdin="hello\n")
    assert desk.ok("copy", f"{desk.there}/said", "-") == "hello\n"
    desk.write("big", LARGE)
    done = desk.person.sh(f"cat big | pai copy - {desk.there}/big && pai copy {desk.there}/big - | cmp - big")
    assert done.status == 0, done
    assert desk.pai("copy", "-", f"{desk.there}/").status == 2


def test_files_go_from_one_place_on_the_cluster_to_another(desk: Desk) -> None:
    desk.write("d/small", b"small")
    desk.write("d/large", LARGE[: 3 << 20])
    desk.ok("copy", "d", f"{desk.there}/a")
    desk.ok("copy", f"{desk.there}/a", f"{desk.there}/b")
    desk.ok("copy", "--http", f"{desk.there}/a", f"{desk.there}/c")
    assert desk.names("b") == ["b/large", "b/small"]
    assert desk.read("c/large") == LARGE[: 3 << 20]


def test_the_users_name_and_storage_zero_are_understood(desk: Desk) -> None:
    desk.write("f", b"1")
    rest = desk.path.removeprefix(f"/user/{desk.user}")
    desk.ok("copy", "f", "pai://team/0/user/${PAI_USER_NAME}" + rest + "/f")
    assert desk.names() == ["f"]
    name = next(each["name"] for each in desk.json("list-storages", "team") if each["selected"])
    assert desk.ok("listdir", f"pai://team/{name}{desk.path}") == "f\n"


def test_sync_moves_what_differs_and_deletes_only_when_told(desk: Desk) -> None:
    desk.write("d/a", b"1")
    desk.write("d/sub/b", b"2")
    desk.ok("sync", "d", f"{desk.there}/d")
    (desk.here / "d/sub/b").unlink()
    (desk.here / "d/sub").rmdir()
    desk.write("d/c", b"3")
    desk.ok("sync", "d", f"{desk.there}/d")
    assert desk.names("d") == ["d/a", "d/c", "d/sub/b"]
    tried = desk.pai("sync", "--delete", "--dry-run", "d", f"{desk.there}/d")
    assert tried.out == "delete  sub\n" and "Nothing was done" in tried.err
    assert desk.names("d") == ["d/a", "d/c", "d/sub/b"]
    desk.ok("sync", "--delete", "d", f"{desk.there}/d")
    assert desk.names("d") == ["d/a", "d/c"]
    desk.write("d2/a/now a folder", b"4")
    desk.ok("sync", "--delete", "d2", f"{desk.there}/d")
    assert desk.names("d") == ["d/a/now a folder"]


def test_sync_tells_all_it_deleted_also_what_was_in_the_way(desk: Desk) -> None:
    desk.write("new/a/inside", b"1")
    desk.write("new/b", b"2")
    desk.write("old/a", b"3")
    desk.write("old/b/inside", b"4")
    desk.write("old/c", b"5")
    desk.ok("copy", "old", f"{desk.there}/d")
    assert sorted(desk.json("sync", "--delete", "new", f"{desk.there}/d")["toDelete"]) == ["a", "b", "c"]
    assert desk.names("d") == ["d/a/inside", "d/b"]


def test_sync_brings_a_folder_back(desk: Desk) -> None:
    desk.write("d/a", b"1")
    desk.write("d/sub/b", b"2")
    desk.ok("copy", "d", f"{desk.there}/d")
    desk.write("mine/extra")
    desk.ok("sync", "--delete", f"{desk.there}/d", "mine")
    assert tree_of(desk.here / "mine") == {"a": b"1", "sub/b": b"2"}


def test_listing_and_looking(desk: Desk) -> None:
    desk.write("d/sub/b", b"x" * 2000)
    desk.write("d/a", b"1")
    desk.ok("copy", "d", f"{desk.there}/")
    assert desk.ok("listdir", f"{desk.there}/d") == "a\nsub/\n"
    assert desk.ok("list-dir", "-R", f"{desk.there}/d") == "a\nsub/\nsub/b\n"
    long = desk.ok("listdir", "-l", "-R", "-H", f"{desk.there}/d").splitlines()
    assert long[0].split() == ["MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"]
    assert long[3].split()[:5] == ["-rw-r--r--", desk.user, desk.user, "2.0", "kB"]
    assert desk.ok("listdir", "d") == "a\nsub/\n"
    assert desk.json("getinfo", f"{desk.there}/d/a")["type"] == "file"
    used = desk.json("disk-usage", f"{desk.there}/d")
    assert (used["files"], used["bytes"], used["parts"][0]["name"]) == (2, 2001, "sub")
    assert desk.ok("disk-usage", "-H", f"{desk.there}/d").splitlines()[-1].split()[:2] == ["2.0", "kB"]


def test_a_list_of_all_below_goes_through_no_link(desk: Desk) -> None:
    desk.write("d/sub/f", b"x")
    (desk.here / "d/sub/back").symlink_to("..")
    (desk.here / "d/again").symlink_to("sub")
    assert desk.ok("listdir", "-R", "d") == "again/\nsub/\nsub/back/\nsub/f\n"


def test_an_address_without_a_storage_lists_the_storages(desk: Desk) -> None:
    names = [each["name"] for each in desk.json("list-storages", "team")]
    for address in ("pai://team", "pai://team/"):
        assert desk.ok("listdir", address) == "".join(f"{name}/\n" for name in names)
    assert [each["path"] for each in desk.json("listdir", "pai://team")] == [f"pai://team/{n}" for n in names]
    assert desk.pai("listdir", "pai://nobody").status == 2
    assert desk.pai("listdir", "pai://").status == 2


def test_programs_are_told_what_was_made_and_removed(desk: Desk) -> None:
    made = desk.json("makedir", f"{desk.there}/a", desk.there)
    assert made == [{"path": f"{desk.path}/a", "made": True}, {"path": desk.path, "made": False}]
    (gone,) = desk.json("remove", f"{desk.there}/a")
    assert (gone["path"], gone["type"]) == (f"{desk.path}/a", "directory")


def test_folders_are_made_and_removed(desk: Desk) -> None:
    desk.ok("makedirs", f"{desk.there}/a/b/c", f"{desk.there}/x")
    desk.ok("makedir", f"{desk.there}/a/b/c")
    assert desk.ok("listdir", desk.there) == "a/\nx/\n"
    # What lies in it goes with it; only at a terminal there is somebody to ask.
    desk.ok("delete", f"{desk.there}/a", f"{desk.there}/x")
    assert desk.ok("listdir", desk.there) == ""


def test_a_storage_of_this_machine_is_a_storage_like_others(desk: Desk) -> None:
    (desk.here / "mounted").mkdir()
    desk.write("d/f", b"1")
    desk.ok("add-storage-cluster", "-a", "disks", "--type", "mount", "--path", str(desk.here / "mounted"))
    try:
        desk.ok("copy", "d", "pai://disks/0/d")
        assert desk.ok("listdir", "pai://disks/mount/d") == "f\n"
        desk.ok("copy", "pai://disks/0/d", f"{desk.there}/d")
        assert desk.names() == ["d/f"]
        desk.ok("remove", "pai://disks/0/d")
        assert list((desk.here / "mounted").iterdir()) == []
    finally:
        desk.ok("delete-cluster", "disks")


def test_a_selected_storage_is_meant_by_zero(desk: Desk) -> None:
    name = desk.json("list-storages", "team")[0]["name"]
    desk.ok("select-storage", "-a", "team", "--storage-name", name, "--workspace", "vision")
    kept = desk.person.home / ".openpai/clusters.yaml"
    assert f"storage_name: {name}" in kept.read_text() and f"/{desk.user}/vision" in kept.read_text()
    assert "vision" in desk.ok("listdir", f"pai://team/0/{desk.user}")
    bad = desk.pai("select-storage", "-a", "team", "--storage-name", "nope")
    assert bad.status == 2 and "'nope'" in bad.err


def test_below_a_file_no_folder_can_be_made(desk: Desk) -> None:
    desk.ok("copy", str(desk.write("f")), f"{desk.there}/f")
    done = desk.pai("makedirs", f"{desk.there}/f/below")
    assert done.status == 2
    assert done.err.strip().endswith("/f/below: a part of this path is a file and not a folder.")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_neither_copied_nor_replaced(desk: Desk, kind: str) -> None:
    path = desk.here / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif os.geteuid() == 0:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        missing("root, who alone makes devices,")
    desk.write("f", b"x")
    desk.ok("copy", "f", f"{desk.there}/f")
    for words in ((kind, f"{desk.there}/p"), (f"{desk.there}/f", kind), ("f", kind)):
        done = desk.pai("copy", *words)
        assert done.status == 2 and f"{kind} is neither a file nor a folder" in done.err, done
    assert not path.is_file()
    assert desk.names() == ["f"]


def test_a_copy_to_a_link_goes_where_it_leads(desk: Desk) -> None:
    desk.write("f", b"new")
    desk.ok("copy", "f", f"{desk.there}/f")
    desk.write("real", b"old")
    (desk.here / "link").symlink_to("real")
    desk.ok("copy", f"{desk.there}/f", "link")
    assert (desk.here / "link").is_symlink()
    assert (desk.here / "real").read_bytes() == b"new"


@pytest.mark.parametrize("source", ["there", "here"])
@pytest.mark.parametrize("size", [5, 5 << 20])
def test_a_link_in_the_target_is_never_followed_out_of_it(desk: Desk, source: str, size: int) -> None:
    """As with ``cp -r`` and ``rsync``."""
    desk.write("d/sub/f", LARGE[:size])
    desk.write("d/file", LARGE[:size])
    desk.ok("copy", "d", f"{desk.there}/d")
    place = f"{desk.there}/d" if source == "there" else "d"
    outside, target = desk.here / "outside", desk.here / "target"
    for each in (outside, target / "kept"):
        each.mkdir(parents=True)
    for name in ("sub", "file", "mine"):
        (target / name).symlink_to(outside)
    refused = desk.pai("sync", place, "target")
    assert refused.status != 0 and "either of them a link: sub, file." in refused.err.replace(
        "file, sub", "sub, file"
    )
    (desk.here / "into").mkdir()
    (desk.here / "into/d").symlink_to(outside)
    refused = desk.pai("copy", place, "into")
    assert refused.status != 0 and "into/d is a link" in refused.err and refused.err.count("\n") == 2
    assert not list(outside.iterdir())
    desk.ok("sync", "--delete", place, "target")
    assert not list(outside.iterdir()) and not (target / "kept").exists()
    assert tree_of(target) == tree_of(desk.here / "d")
    # What never travels, a sync does not take away either; and a link that was named is meant.
    assert (target / "mine").readlink() == outside
    desk.ok("sync", place, "into/d")
    assert tree_of(outside) == tree_of(desk.here / "d")


def test_a_link_that_leads_to_itself_stays_behind_and_is_named(desk: Desk) -> None:
    desk.write("d/f", b"x")
    (desk.here / "d/loop").symlink_to("loop")
    done = desk.pai("copy", "d", f"{desk.there}/d")
    assert done.status == 0 and "loop (a link to nothing)" in done.err, done
    assert desk.names("d") == ["d/f"]


@BOTH_WAYS
def test_several_copies_to_one_place_at_the_same_time_all_go_well(desk: Desk, way: list[str]) -> None:
    """As when every task of a job on one machine fetches the same data."""
    for number in range(300):
        desk.write(f"d/{number}", os.urandom(2000))
    desk.write("d/data.tar", os.urandom(30 << 20))
    desk.write("d/data.tar.gz", os.urandom(30 << 20))
    for words in (("d", f"{desk.there}/"), (f"{desk.there}/d", "back/")):
        (desk.here / "back").mkdir(exist_ok=True)
        with ThreadPoolExecutor(3) as pool:
            copies = [pool.submit(desk.pai, "copy", *way, *words) for _ in range(3)]
        assert [copy.result().status for copy in copies] == [0, 0, 0], [copy.result().err for copy in copies]
    assert tree_of(desk.here / "back/d") == tree_of(desk.here / "d")


def test_a_name_with_a_line_break_is_reached_by_its_address(desk: Desk) -> None:
    desk.write("two\nlines", b"x")
    desk.ok("copy", "two\nlines", f"{desk.there}/")
    assert desk.json("getinfo", f"{desk.there}/two\nlines")["size"] == 1
    desk.ok("copy", f"{desk.there}/two\nlines", "back")
    desk.ok("remove", f"{desk.there}/two\nlines")
    assert desk.names() == []


def _texts(value: object) -> list[object]:
    if not isinstance(value, (list, dict)):
        return [value]
    return [text for each in (value.values() if isinstance(value, dict) else value) for text in _texts(each)]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_programs_are_told_json_also_of_names_that_are_no_text(desk: Desk, locale: str) -> None:
    name = os.fsdecode(b"caf\xe9 \xc3\xbc")
    (desk.here / "d").mkdir()
    (desk.here / "d" / name).write_bytes(b"x")
    for words in (["listdir", "d"], ["disk-usage", "d"], ["sync", "-n", "d", "e"], ["getinfo", f"d/{name}"]):
        with_bytes = subprocess.run(
            ["pai", *words, "-o", "json"],
            cwd=desk.here,
            env=desk.person.env(LC_ALL=locale),
            stdout=subprocess.PIPE,
            check=True,
        )
        assert name in _texts(json.loads(with_bytes.stdout.decode()))


def test_what_did_not_arrive_is_counted_as_files_and_folders(desk: Desk) -> None:
    desk.write("d/a", b"x")
    desk.write(f"d/{'long' * 50}/b", b"x")
    desk.ok("copy", "d", f"{desk.there}/d")
    far = "target"
    while len(str(desk.here)) + len(far) < 3900:  # no path may be longer than 4096 bytes
        far += "/" + "far" * 10
    desk.write(f"{far}/a", b"old")
    (desk.here / far / ".a.pai-part").symlink_to("/proc/nowhere")  # nothing can be written there
    done = desk.pai("sync", f"{desk.there}/d", far)
    assert done.status == 1, done
    assert (
        "2 of 2 files and 1 folder could not be copied" in done.err and "All others arrived" not in done.err
    )
