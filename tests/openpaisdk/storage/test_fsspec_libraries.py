"""`pai://` with pyarrow, pandas, Zarr, torch and fsspec itself."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from support.storage_fixture import StorageWorkspace

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def at_home(workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workspace.person.home))


@pytest.fixture(params=[False, True], ids=["handed over", "over HTTP"])
def options(request: pytest.FixtureRequest) -> dict[str, bool]:
    return {"http": True} if request.param else {}


def test_pyarrow_writes_and_reads_tables(workspace: StorageWorkspace, options: dict[str, bool]) -> None:
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    fs, there = fsspec.url_to_fs(workspace.remote, **options)
    table = pa.table({"n": list(range(50_000)), "kind": ["even", "odd"] * 25_000})
    where = f"{there}/table"
    pq.write_table(table, f"{where}/one.parquet", filesystem=fs)
    assert pq.read_table(f"{where}/one.parquet", filesystem=fs, columns=["n"]).num_rows == 50_000
    pq.write_to_dataset(table, f"{where}/parts", partition_cols=["kind"], filesystem=fs)
    parts = ds.dataset(f"{where}/parts", filesystem=fs, partitioning="hive")
    assert parts.count_rows(filter=ds.field("kind") == "odd") == 25_000
    assert sorted(parts.to_table()["n"].to_pylist()) == list(range(50_000))
    if not options:
        assert pq.read_table(f"fsspec+{workspace.remote}/table/one.parquet").equals(table)


def test_pandas_reads_and_writes_by_url(workspace: StorageWorkspace) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": range(1000), "b": ["x", "y"] * 500})
    frame.to_csv(f"{workspace.remote}/t.csv", index=False)
    frame.to_parquet(f"{workspace.remote}/t.parquet")
    assert pd.read_csv(f"{workspace.remote}/t.csv").equals(frame)
    assert pd.read_parquet(f"{workspace.remote}/t.parquet").equals(frame)


def test_zarr_stores_arrays(workspace: StorageWorkspace, options: dict[str, bool]) -> None:
    import numpy as np
    import zarr
    from zarr.storage import FsspecStore

    values = np.arange(120_000, dtype="i4").reshape(300, 400)
    store = FsspecStore.from_url(f"{workspace.remote}/array.zarr", storage_options=options)
    array = zarr.create_array(store, shape=values.shape, chunks=(100, 100), dtype=values.dtype)
    array[:] = values
    again = FsspecStore.from_url(f"{workspace.remote}/array.zarr", storage_options=options, read_only=True)
    found = zarr.open_array(again, mode="r")
    assert (found[150:250, 50:350] == values[150:250, 50:350]).all()
    assert (found[:] == values).all()


def test_torch_loads_and_saves_weights(workspace: StorageWorkspace, options: dict[str, bool]) -> None:
    """The wheel of torch has half a GB: the test runs where it is installed."""
    torch = pytest.importorskip("torch")
    weights = {"w": torch.arange(1_000_000, dtype=torch.float32), "step": 7}
    with fsspec.open(f"{workspace.remote}/weights.pt", "wb", **options) as f:
        torch.save(weights, f)
    with fsspec.open(f"{workspace.remote}/weights.pt", **options) as f:
        found = torch.load(f)
    assert found["step"] == 7 and torch.equal(found["w"], weights["w"])


def test_fsspec_copies_between_local_and_remote(workspace: StorageWorkspace, tmp_path: Path) -> None:
    from fsspec.generic import GenericFileSystem

    content = os.urandom(3_000_000)
    (tmp_path / "f").write_bytes(content)
    generic = GenericFileSystem(default_method="current")
    generic.cp_file(f"file://{tmp_path}/f", f"{workspace.remote}/f")
    generic.cp_file(f"{workspace.remote}/f", f"{workspace.remote}/g")
    generic.cp_file(f"{workspace.remote}/g", f"file://{tmp_path}/g")
    assert (tmp_path / "g").read_bytes() == content


def test_large_ranges_of_a_local_storage(workspace: StorageWorkspace) -> None:
    """Chunks share their memory: a kept chunk must not change with the next one."""
    (workspace.local / "disk").mkdir()
    content = os.urandom(5 << 20)
    workspace.write("disk/f", content)
    workspace.ok(
        "add-storage-cluster", "-a", "large", "--type", "mount", "--path", str(workspace.local / "disk")
    )
    try:
        with fsspec.open("pai://large/0/f", skip_instance_cache=True) as f:
            assert f.read() == content
            f.seek(100)
            assert f.read(4 << 20) == content[100 : 100 + (4 << 20)]
        fs = fsspec.filesystem("pai", skip_instance_cache=True)
        assert fs.cat_file("pai://large/0/f", 1, 4_000_000) == content[1:4_000_000]
    finally:
        workspace.ok("delete-cluster", "large")
