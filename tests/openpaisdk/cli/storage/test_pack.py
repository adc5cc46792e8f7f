"""`pai pack`, `pai unpack` and `pai listdir` of packs, on this machine and on a cluster's storage."""

import json
import os
import sys

import pytest

from support.packed_data import contents, make_files
from support.small_disk import mounted

THERE = "pai://local/0/packs"


@pytest.fixture(name="files")
def files_fixture(user):
    folder = user.project / "files"
    if not folder.exists():
        make_files(folder)
        next(path for path in folder.iterdir() if b"\xe9" in bytes(path)).unlink()  # no name for a storage
    return folder


@pytest.mark.parametrize("name", ["tar", "sequencefile", "har", "tfrecord"])
def test_to_a_cluster_and_back(user, files, name: str) -> None:
    done = user.pai("pack", "--format", name, "--shard-size", "20k", "files", f"{THERE}/{name}")
    assert done.status == 0, done
    shards = len(json.loads(user.pai("copy", f"{THERE}/{name}/pack.json", "-").out)["shards"])
    assert shards > 2 and done.out.startswith(f"43 records in {shards} shards, "), done
    assert done.out.endswith(f"/packs/{name}\n"), done
    again = user.pai(
        "pack",
        "--format",
        name,
        "--shard-size",
        "20k",
        "--jobs",
        "3",
        "-o",
        "json",
        "files",
        f"{THERE}/{name}",
    )
    assert json.loads(again.out)["keptShards"] == shards, again
    done = user.pai("unpack", f"{THERE}/{name}", f"back-{name}")
    assert done.status == 0 and "43 files" in done.out, done
    assert contents(user.project / f"back-{name}") == contents(files)


def test_from_a_cluster_to_a_cluster(user, files) -> None:
    assert user.pai("copy", "files", f"{THERE}/plain").status == 0
    done = user.pai(
        "pack",
        "--key",
        "{path}",
        "--compression",
        "block-bzip2",
        "--format",
        "sequencefile",
        f"{THERE}/plain",
        f"{THERE}/packed",
    )
    assert done.status == 0, done
    assert user.pai("unpack", f"{THERE}/packed", f"{THERE}/unpacked").status == 0
    assert user.pai("copy", f"{THERE}/unpacked", "unpacked").status == 0
    assert contents(user.project / "unpacked") == contents(files)


def test_listdir_shows_what_is_in_a_pack(user, files) -> None:
    assert user.pai("pack", "files", f"{THERE}/listed").status == 0
    assert user.pai("listdir", f"{THERE}/listed").out.split() == [
        "pack.json",
        "shard-000000.tar",
        "shard-000000.tar.index",
    ]
    shown = user.pai("listdir", "--records", f"{THERE}/listed").out.splitlines()
    assert shown[:4] == ["class0/", "class1/", "class2/", "empty"], shown
    inside = user.pai("listdir", f"{THERE}/listed/class1").out.split()
    assert inside[0] == "sample001.bin" and len(inside) == 13
    rows = json.loads(user.pai("listdir", "-R", "-o", "json", "--records", f"{THERE}/listed").out)
    base = "/packs/listed/"
    assert {row["path"].partition(base)[2]: row["size"] for row in rows if row["type"] == "file"} == {
        name: len(content) for name, content in contents(files).items()
    }
    lines = user.pai("listdir", "-l", "--records", f"{THERE}/listed").out.splitlines()
    assert lines[4].split() == ["-rw-r--r--", "-", "-", "0", "-", "empty"], lines  # a record has no time
    absent = user.pai("listdir", f"{THERE}/listed/absent")
    assert absent.status == 2 and "there is no such file or folder" in absent.err


def test_listdir_shows_records_of_other_shards_and_says_what_is_no_pack(user, files) -> None:
    assert user.pai("pack", "--shard-size", "1m", "files", "torn").status == 0
    (user.project / "torn/pack.json").unlink()
    shown = user.pai("listdir", "--records", "torn")
    assert shown.status == 1 and "torn is an unfinished pack" in shown.err, shown
    shown = user.pai("listdir", "--records", "files")
    assert shown.status == 2 and "files is not a pack" in shown.err, shown
    for index in (user.project / "torn").glob("*.index"):
        index.unlink()
    for shards in ("torn", "torn/shard-000000.tar"):
        shown = user.pai("listdir", "--records", shards)
        assert shown.out.splitlines()[:4] == ["class0/", "class1/", "class2/", "empty"], shown


def test_full_disk_says_how_to_go_on(user, files, tmp_path) -> None:
    (user.project / "large").mkdir(exist_ok=True)
    (user.project / "large/file").write_bytes(bytes(2 << 20))
    assert user.pai("pack", "large", "large.pack").status == 0
    with mounted(tmp_path / "disk", "size=1m") as disk:
        full = user.pai("unpack", "large.pack", str(disk / "out"))
    assert full.status == 1 and "Free some space, and run the same command again." in full.err, full


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent", "target"], "absent: there is no such file or folder"),
        (["files/empty", "target"], "is a file; pai pack packs the files of a folder"),
        (["files", "files/inside"], "lies inside files"),
        (["files", "./files"], "./files and files are the same folder"),
        (["--shard-size", "big", "files", "target"], "--shard-size 'big' is not a size"),
        (["--jobs", "0", "files", "target"], "--jobs must be between 1 and 64"),
        (["--compression", "block-deflate", "files", "target"], "The format tar has no compression"),
        (["--key", "{x}", "files", "target"], "unknown field {x}"),
        (["--key", "x{index}{", "files", "target"], "is not a template"),
        (["files", "files/empty"], "lies inside"),
    ],
)
def test_wrong_input_is_one_sentence(user, files, words: list[str], said: str) -> None:
    done = user.pai("pack", *words)
    assert done.status == 2 and said in done.err and "Traceback" not in done.err, done
    assert not (user.project / "target").exists()


def test_unpack_of_something_else_is_one_sentence(user, files) -> None:
    done = user.pai("unpack", "files", "out")
    assert done.status == 2 and "is not a pack" in done.err, done
    user.write(notes="text")
    done = user.pai("unpack", "absent.tar", "out")
    assert done.status == 2 and "there is no such file" in done.err, done


def test_names_in_any_encoding(user, tmp_path) -> None:
    """They are keys everywhere, and files where the storage has such names."""
    folder = tmp_path / "data"
    names = [b"latin-\xe9", "名前".encode(), "名前".encode("shift_jis"), b"tab\there", b"line\nend", b"-x"]
    folder.mkdir()
    for name in names:
        (folder / os.fsdecode(name)).write_bytes(name)
    for kind in ("tar", "sequencefile", "har", "tfrecord"):
        done = user.pai("pack", "--format", kind, str(folder), f"{THERE}/encodings-{kind}")
        assert done.status == 0, done
        out = tmp_path / f"out-{kind}"
        assert user.pai("unpack", f"{THERE}/encodings-{kind}", str(out)).status == 0
        assert contents(out) == contents(folder)
    refused = user.pai("unpack", f"{THERE}/encodings-tar", f"{THERE}/encodings-out")
    assert refused.status == 2 and len(refused.err.splitlines()) == 2, refused
    assert "cannot be a file on pai://local/home: it is not UTF-8" in refused.err
    assert "Unpack it to a folder of this machine" in refused.err
    assert user.pai("getinfo", f"{THERE}/encodings-out").status == 2  # nothing was written


def test_folder_of_a_cluster_is_a_data_set(user, files) -> None:
    """Without a pack, by two ranks, also over HTTP."""
    assert user.pai("copy", "files", f"{THERE}/unpacked-data").status == 0
    program = (
        "import sys; from openpaisdk.data import Records, RecordStream\n"
        "url = sys.argv[1]\n"
        "parts = [list(RecordStream(url, shuffle=True, rank=r, world_size=2)) for r in (0, 1)]\n"
        "found = dict(parts[0] + parts[1])\n"
        "assert len(parts[0]) + len(parts[1]) == len(found) == len(Records(url)) == 43\n"
        "assert all(open('files/' + key, 'rb').read() == found[key] for key in found)\n"
        "assert dict(Records(url).__getitems__(range(43))) == found\n"
    )
    for over_http in ("", "1"):
        env = {"PAI_STORAGE_HTTP": over_http}
        done = user.run([sys.executable, "-c", program, f"{THERE}/unpacked-data"], env=env)
        assert done.status == 0, done


def test_links_are_named(user, tmp_path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("x")
    (tmp_path / "data/link").symlink_to("/")
    done = user.pai("pack", str(tmp_path / "data"), str(tmp_path / "out"))
    assert done.status == 0 and "Not packed, because they are links or special files: link." in done.err, done


def test_killed_run_is_resumed(user, tmp_path) -> None:
    """kill -9 in the middle costs the shard that was being written: all complete ones are kept."""
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(600):
        (folder / f"{i:04}").write_bytes(bytes([i % 256]) * 20_000)
    words = ["pack", "--shard-size", "1m", "--jobs", "1", str(folder), str(tmp_path / "out")]
    process = user.begin(*words)
    while process.poll() is None and len(list((tmp_path / "out").glob("*.index"))) < 2:
        pass
    process.kill()
    process.wait()
    assert not (tmp_path / "out/pack.json").exists()
    complete = len(list((tmp_path / "out").glob("*.index")))
    done = user.pai(*words, "-o", "json")
    assert done.status == 0 and json.loads(done.out)["keptShards"] == complete, done
    assert user.pai("unpack", str(tmp_path / "out"), str(tmp_path / "back")).status == 0
    assert contents(tmp_path / "back") == contents(folder)
    assert not [path for path in (tmp_path / "out").iterdir() if "part" in path.name]
