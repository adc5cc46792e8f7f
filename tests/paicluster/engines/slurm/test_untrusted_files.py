"""Untrusted files: a root server reads folders of its users without trusting their content."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paicluster.engines.common import folder_size, untrusted_files
from paicluster.engines.common.attempt_folder import observation_from_record
from paicluster.engines.common.unix_accounts import Account, Accounts
from paicluster.engines.interface import LaunchFailed, Observation, Phase, TaskLaunch
from paicluster.engines.slurm import gang_folder, observe, sbatch_command
from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.gang_registry import GangRegistry, SubmittedGang
from paicluster.engines.slurm.job_states import SlurmJob, read_jobs
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.reports import placement as placing
from pairuntime.supervisor import claim, exit_record
from support.engine_rig import Driven, task
from support.slurm_cluster import RealSlurm
from support.slurm_engine import options
from support.slurm_rig import SlurmRig

_FILES = (claim.NAME, exit_record.NAME, placing.PLACEMENT)


def _launch(uid: str) -> TaskLaunch:
    return TaskLaunch(uid=uid, node="", script="true", environment={})


def _prepared(root: Path, *uids: str, account: Account | None = None) -> gang_folder.SlurmFolders:
    home = gang_folder.SlurmFolders(root)
    for path in (root, home.tasks, root / "gangs"):
        gang_folder.create_folder(path)
    gang = [_launch(uid) for uid in uids]
    gang_folder.prepare(home, gang, SlurmOptions(root), root / "x" / "compiled.pyz", {}, ["sbatch"], account)
    return home


def _link(path: Path) -> None:
    path.symlink_to("/etc/shadow")


def _folder(path: Path) -> None:
    (path / "inner").mkdir(parents=True)


def _text(words: str) -> Callable[[Path], None]:
    return lambda path: (path.write_text(words), None)[1]


_DEEP = "[" * 100_000 + "]" * 100_000
_NONSENSE = {
    "a link": _link,
    "a pipe": os.mkfifo,
    "a folder": _folder,
    "nothing": _text(""),
    "a list": _text("[1]"),
    "a deep list": _text(_DEEP),
    "no number": _text(
        '{"claimed_ms": 1e999, "pid": NaN, "started_ms": "x", "ended_ms": 1e400, "lost": "x"}'
    ),
    "numbers for no database": _text(
        json.dumps({"exit_code": 10**30, "ended_ms": 10**30, "signal": -(10**9)})
    ),
    "words for no database": _text(
        '{"start_error": "\\ud800\\u0000", "node": "\\ud800", "ports": {"\\ud800": [1]}}'
    ),
    "other kinds": _text('{"ports": {"a": 5, "b": ["x"]}, "gpus": "no", "signals_sent": 5, "node": {}}'),
}


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("what", _NONSENSE)
def test_invalid_files_yield_a_valid_observation(tmp_path: Path, name: str, what: str) -> None:
    home = _prepared(tmp_path / "shared", "abc")
    path = home.task("abc")
    if name != claim.NAME:
        (path / claim.NAME).write_text('{"pid": 5, "claimed_ms": 7}')
    _NONSENSE[what](path / name)
    gang = SubmittedGang("abc", home.gang("abc"), ("abc",), "7", live={"abc"})
    seen = observe.observe_attempt(home, "abc", gang, 1.0)
    assert seen.phase in (Phase.RUNNING, Phase.ENDED)
    _can_be_kept(seen)
    # Slurm's finished state ends it, whatever the folder contains.
    gang.finished_at = -1000.0
    assert observe.observe_attempt(home, "abc", gang, 1.0).phase in (Phase.LOST, Phase.ENDED)


def _can_be_kept(seen: Observation) -> None:
    for number in (seen.exit_code, seen.signal, seen.started_ms, seen.ended_ms):
        assert number is None or 0 <= number < 1 << 62
    words = [seen.start_error]
    if seen.placement is not None:
        words += [seen.placement.node, seen.placement.ip, *seen.placement.ports]
    for word in words:
        assert b"\0" not in word.encode()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_KEYS = ("exit_code", "signal", "signals_sent", "started_ms", "ended_ms", "start_error", "oom", "stopped")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(_KEYS, _VALUES)))
def test_any_exit_record_can_be_stored(said: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / exit_record.NAME).write_text(json.dumps(said))
        found = untrusted_files.read_exit_record(Path(name))
        if found is not None:
            _can_be_kept(observation_from_record(found))


def test_output_tail_is_short_and_from_a_regular_file(tmp_path: Path) -> None:
    home = _prepared(tmp_path / "shared", "abc")
    written = home.gang("abc") / gang_folder.OUTPUT
    os.mkfifo(written)
    assert gang_folder.output_tail(home.gang("abc")) == ""
    written.unlink()
    with written.open("wb") as f:
        f.truncate(1 << 40)
        f.seek(0, os.SEEK_END)
        f.write(b"the\0end\n")
    assert gang_folder.output_tail(home.gang("abc")).endswith("the end")


def test_gang_of_an_attempt_is_not_read_from_its_folder(tmp_path: Path) -> None:
    home = _prepared(tmp_path / "shared", "abc", "def")
    evil = home.root / "gangs" / ".." / "evil"
    evil.mkdir()
    (evil / "gang.json").write_text(json.dumps({"tasks": [{"uid": "abc"}, {"uid": "../x"}]}))
    (evil / gang_folder.SBATCH_COMMAND).write_text(json.dumps(["touch", str(tmp_path / "done")]))
    for uid in ("abc", "def"):
        spec = home.task(uid) / "spec.json"
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "gang": "../evil"}))
        found = GangRegistry(home).find(uid)
        assert found is not None
        assert (found[0].uid, found[0].members) == ("abc", ("abc", "def"))


def test_comments_of_other_jobs_cannot_forge_state() -> None:
    lines = [
        "w|7|RUNNING|None|n1|1000|0:00|pai:one",
        "w|8|RUNNING|None|n1|1001|0:00|x",
        "7|FAILED|None|n1|1000|0:00|pai:one",
        "|7|FAILED|None|n1|1000|0:00|pai:one",
        "w|9|RUNNING|None|n1|1001|0:00|pai:one",
    ]
    assert read_jobs(lines, "w") == {
        "one": [SlurmJob("7", "RUNNING", "None", "n1", 1000), SlurmJob("9", "RUNNING", "None", "n1", 1001)]
    }


@pytest.mark.parametrize(
    "word",
    [
        *("--nice=-5", "--prio=9", "--partition=secret", "--qos=high", "--account=rich", "--reboot"),
        *("--nodelist=/etc/shadow", "--exclu=/x", "--exclude=/x", "--get-user-env", "--reserv=r", "--hold"),
    ],
)
def test_privileged_sbatch_options_are_rejected_for_users(word: str) -> None:
    with pytest.raises(LaunchFailed):
        sbatch_command.check_extras([word], as_root=True)
    if word != "--exclu=/x":
        assert sbatch_command.check_extras([word]) == [word]


@pytest.mark.parametrize(
    "said", ["--nice=1", 5, {"a": 1}, ["--nice=\n"], ["--x=\0"], ["--x=" + "y" * 20_000]]
)
def test_unprintable_or_long_options_are_rejected(said: object) -> None:
    with pytest.raises(LaunchFailed):
        sbatch_command.check_extras(said)


def test_very_deep_folder_is_measured_and_removed(tmp_path: Path) -> None:
    top = tmp_path / "attempt"
    top.mkdir()
    (top / "file").write_bytes(b"x" * 100_000)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    assert folder_size.disk_usage(top) >= 100_000
    folder_size.remove_tree(top)
    assert not top.exists()


# -- as root, for users -------------------------------------------------------------------------------

_NOBODY = pwd.getpwnam("nobody")
_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@_ROOT_ONLY
def test_trusted_gang_files_are_not_writable_by_the_account(tmp_path: Path) -> None:
    account = Account("nobody", _NOBODY.pw_uid, _NOBODY.pw_gid, ())
    before = os.umask(0o077)
    try:
        home = _prepared(tmp_path / "shared", "abc", "def", account=account)
    finally:
        os.umask(before)
    gang = home.gang("abc")
    for name in ("gang.json", "batch.sh", gang_folder.SBATCH_COMMAND):
        found = (gang / name).stat()
        assert (found.st_uid, found.st_mode & 0o022) == (0, 0), name
    assert gang.stat().st_uid == home.gang("def").stat().st_uid == 0
    assert {path.stat().st_mode & 0o777 for path in (home.root, gang.parent, gang)} == {0o711}
    assert (gang / "gang.json").stat().st_mode & 0o044 == 0o044
    assert home.task("abc").stat().st_uid == _NOBODY.pw_uid


@_ROOT_ONLY
def test_leftover_links_of_an_account_are_not_followed(tmp_path: Path) -> None:
    account = Account("nobody", _NOBODY.pw_uid, _NOBODY.pw_gid, ())
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    home = _prepared(tmp_path / "shared", "abc", account=account)
    (home.gang("abc") / "gang.json").unlink()
    for name in ("spec.json.aside", "task.sh.aside", "work/.pai/x"):
        (home.task("abc") / name).symlink_to(victim)
    _prepared(home.root, "abc", account=account)
    assert victim.read_text() == "untouched"
    assert victim.stat().st_uid == 0


class _PeoplesRig(SlurmRig):
    """A root server with separate accounts: alice is the account `nobody`."""

    def engine(self, **limits: object) -> SlurmEngine:
        return SlurmEngine(options(self.home, **limits), accounts=Accounts({"alice": "nobody"}, lambda: 2))


@pytest.fixture
def shared() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="pai-shared-"))
    top.chmod(0o711)
    before = os.umask(0o077)
    try:
        yield top / "shared"
    finally:
        os.umask(before)
        shutil.rmtree(top, ignore_errors=True)


_MISCHIEF = """
attempt=$PWD/..
cd "$attempt"
python3 - <<'END'
import json
spec = json.load(open("spec.json"))
spec["gang"] = "../evil"
json.dump(spec, open("spec.json", "w"))
END
gang=%(gang)s
rm -f placement.json; mkfifo placement.json
rm -f "$gang/run/slurm.out"; mkfifo "$gang/run/slurm.out"
echo 1 >"$gang/run/owner"
ln -s /etc/shadow all.99999
mkdir %(events)s/odd %(events)s/odd/inner
! echo '#SBATCH --nice=-100' >>"$gang/batch.sh"
! echo '{"tasks": []}' >"$gang/gang.json"
echo up
sleep 60
"""


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("slurm")
@_ROOT_ONLY
async def test_task_that_corrupts_its_folder_affects_no_other(slurm: RealSlurm, shared: Path) -> None:
    rig = _PeoplesRig(slurm, shared)
    bad = task(rig, "", owner="alice")
    good = task(rig, "echo up; exec sleep 60", owner="alice")
    words = {"gang": rig.gang(bad.uid), "events": rig.home / "events"}
    bad = TaskLaunch(**{**{name: getattr(bad, name) for name in bad.__slots__}, "script": _MISCHIEF % words})
    async with Driven(rig) as driven:
        await driven.launch(bad)
        await driven.launch(good)
        for one in (bad, good):
            await driven.wait_for_output(one.uid, b"up")
    # Another server, which has only the folders.
    async with Driven(rig) as driven:
        seen = await driven.engine.observe([bad.uid, good.uid])
        assert {one.phase for one in seen.values()} == {Phase.RUNNING}
        assert b"root:" not in await driven.engine.log_tail(bad.uid, 1 << 20)
        await driven.engine.stop([bad.uid, good.uid], 5)
        for one in (bad, good):
            assert (await driven.ended(one.uid)).stopped
        await driven.engine.remove([bad.uid, good.uid])
    assert not rig.folder(bad.uid).exists() and not rig.gang(bad.uid).exists()
    rig.close()
