"""Settings files: atomic, private, cached, with clear errors."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from openpaisdk.config import yaml_files
from paiprotocol.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def test_missing_file_reads_as_none(tmp_path) -> None:
    assert yaml_files.read_yaml(str(tmp_path / "none.yaml")) is None


def test_written_file_is_private(tmp_path) -> None:
    path = tmp_path / "deep" / "a.yaml"
    yaml_files.write_yaml(str(path), [{"cluster_alias": "x", "token": "ÿ"}])
    assert yaml_files.read_yaml(str(path)) == [{"cluster_alias": "x", "token": "ÿ"}]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_unchanged_file_is_parsed_once(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    os.utime(path, (1, 1))
    assert yaml_files.read_yaml(str(path), min_cache_age_ns=-1) == {"a": 1}
    monkeypatch.setattr(yaml_files, "parse_yaml", lambda path: pytest.fail("parsed again"))
    assert yaml_files.read_yaml(str(path)) == {"a": 1}
    monkeypatch.undo()
    path.write_text("a: 2\n")
    assert yaml_files.read_yaml(str(path)) == {"a": 2}


def test_values_json_cannot_represent_are_not_cached(tmp_path, home, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    path = tmp_path / "a.yaml"
    path.write_text("1: one\nday: 2020-01-01\n")
    first = yaml_files.read_yaml(str(path), min_cache_age_ns=-1)
    assert yaml_files.read_yaml(str(path), min_cache_age_ns=-1) == first
    assert list(first) == [1, "day"]


def test_recently_written_file_is_not_cached(tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    yaml_files.read_yaml(str(path))
    assert not Path(yaml_files._cache_file(str(path))).exists()


def test_corrupt_cache_is_ignored(tmp_path) -> None:
    path = tmp_path / "a.yaml"
    yaml_files.write_yaml(str(path), {"a": 1})
    cache = Path(yaml_files._cache_file(str(path)))
    assert json.loads(cache.read_text())["value"] == {"a": 1}
    cache.write_text("{")
    assert yaml_files.read_yaml(str(path)) == {"a": 1}


def test_invalid_yaml_is_reported_with_line(tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb: [\n")
    with pytest.raises(ConfigError, match=r"a\.yaml, line \d+ is not valid YAML"):
        yaml_files.read_yaml(str(path))
    path.write_bytes(b"\xff\xfe\x00bad")
    with pytest.raises(ConfigError, match="not valid YAML"):
        yaml_files.read_yaml(str(path))


def test_symlinked_settings_file_stays_a_link(tmp_path) -> None:
    real = tmp_path / "dotfiles" / "clusters.yaml"
    real.parent.mkdir()
    real.write_text("[]\n")
    link = tmp_path / "clusters.yaml"
    link.symlink_to(real)
    yaml_files.write_yaml(str(link), [1])
    assert link.is_symlink() and real.read_text() == "- 1\n"


def test_unwritable_folder_is_one_line_error(tmp_path) -> None:
    (tmp_path / "flat").write_text("a file, not a folder")
    with pytest.raises(ConfigError, match="cannot be written"):
        yaml_files.write_yaml(str(tmp_path / "flat" / "a.yaml"), {})


def test_full_disk_keeps_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.yaml"
    yaml_files.write_yaml(str(path), {"old": True})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        yaml_files.write_yaml(str(path), {"new": True})
    assert path.read_text() == "old: true\n"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("a.yaml")] == ["a.yaml"]


def test_lock_serializes_writers(tmp_path) -> None:
    path = str(tmp_path / "n.yaml")
    yaml_files.write_yaml(path, {"n": 0})

    def add() -> None:
        for _ in range(20):
            with yaml_files.FileLock(path):
                value = yaml_files.read_yaml(path)
                yaml_files.write_yaml(path, {"n": value["n"] + 1})

    threads = [threading.Thread(target=add) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert yaml_files.read_yaml(path) == {"n": 60}


def test_cached_settings_need_no_yaml_import(tmp_path) -> None:
    path = str(tmp_path / "a.yaml")
    yaml_files.write_yaml(path, {"a": 1})
    code = (
        "import sys; from openpaisdk.config.yaml_files import read_yaml;"
        f"assert read_yaml({path!r}) == {{'a': 1}}; sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
