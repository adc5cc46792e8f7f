"""Which files travel with a function that comes from a package outside of the current folder."""

import importlib
import io
import zipfile
from pathlib import Path

from openpaisdk.functions.local_packages import local_packages


def names(archive: bytes) -> list[str]:
    return sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist())


def test_package_without_init_file_travels(tmp_path: Path, monkeypatch) -> None:
    folders = [tmp_path / name for name in ("one", "two", "here")]
    for folder in folders:
        (folder / "spread_package").mkdir(parents=True)
        (folder / "spread_package" / f"part_{folder.name}.py").write_text("VALUE = 1\n")
        monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path / "here")
    importlib.import_module("spread_package.part_one")
    found = names(local_packages(["spread_package.part_one"]))
    assert found == ["spread_package/part_one.py", "spread_package/part_two.py"]


def test_installed_packages_stay(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_packages(["pytest", "os", "sys", "builtins", "cloudpickle"]) == b""
