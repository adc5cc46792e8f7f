"""Data sets under a real torch DataLoader: eight forked workers, or two spawned ones, read every record once.

With torchdata's StatefulDataLoader they continue in the middle of an epoch.
"""

import os
import sys
from pathlib import Path

import pytest

from support.cli_user import CliUser, shared_user_fixture, user_fixture  # noqa: F401
from support.packed_data import pack
from support.third_party_clients import torch, torchdata

pytestmark = [pytest.mark.slow, pytest.mark.service]

COUNT = 400
PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader
from openpaisdk.data import Records, RecordStream


def length(key, content):
    return int(key.partition(".")[0]), len(content)


def main():
    url, method = sys.argv[1:]
    # Each spawned worker takes seconds of processor time to import torch.
    workers = 8 if method == "fork" else 2
    options = dict(batch_size=7, num_workers=workers, multiprocessing_context=method)
    for data in (RecordStream(url, shuffle=True, decode=length), Records(url, decode=length)):
        loader = DataLoader(data, shuffle=isinstance(data, Records), **options)
        seen = [pair for numbers, sizes in loader for pair in zip(numbers.tolist(), sizes.tolist())]
        assert sorted(seen) == [(i, i) for i in range(400)], len(seen)
        assert seen != sorted(seen)
        print(type(data).__name__, len(data))


if __name__ == "__main__":
    main()
"""


RESUMED = """
import sys
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from openpaisdk.data import RecordStream


def number(key, content):
    return int(key.partition(".")[0])


def loader():
    stream = RecordStream(sys.argv[1], shuffle=True, seed=3, decode=number)
    return StatefulDataLoader(stream, batch_size=7, num_workers=8, multiprocessing_context=sys.argv[2])


def main():
    whole = [batch.tolist() for batch in loader()]
    begun = loader()
    seen = []
    for batch in begun:
        seen.append(batch.tolist())
        if len(seen) == 20:
            break
    resumed = loader()
    resumed.load_state_dict(begun.state_dict())
    assert seen + [batch.tolist() for batch in resumed] == whole
    print(sorted(number for batch in whole for number in batch) == list(range(400)))


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module", name="packed")
def packed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    (folder / "source").mkdir()
    for i in range(COUNT):
        (folder / "source" / f"{i:04}.bin").write_bytes(bytes(i))
    pack(folder / "source", folder / "pack", shard_bytes=100_000)
    return folder / "pack"


def run_with_torch(user: CliUser, program: str, url: str, method: str, **env: str) -> list[str]:
    (user.project / "program.py").write_text(program)
    paths = os.pathsep.join(map(str, (torch(), torchdata())))
    command = [sys.executable, "-W", "ignore", "program.py", url, method]
    done = user.run(command, env={**env, "PYTHONPATH": paths}, limit_s=600)
    assert done.status == 0, done
    return done.out.splitlines()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_every_record_once(packed: Path, user: CliUser, method: str) -> None:
    shown = run_with_torch(user, PROGRAM, str(packed), method)
    assert shown == [f"RecordStream {COUNT}", f"Records {COUNT}"]


def test_workers_read_from_a_cluster(packed: Path, user: CliUser) -> None:
    """Forked after the storage was used: every worker has connections of its own."""
    url = "pai://local/0/records.pack"
    assert user.pai("copy", str(packed), url).status == 0
    shown = run_with_torch(user, PROGRAM, url, "fork", PAI_STORAGE_HTTP="1")
    assert shown == [f"RecordStream {COUNT}", f"Records {COUNT}"]


def test_workers_continue_in_the_middle_of_an_epoch(packed: Path, user: CliUser) -> None:
    assert run_with_torch(user, RESUMED, str(packed), "fork") == ["True"]
