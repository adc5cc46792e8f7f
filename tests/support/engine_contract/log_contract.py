"""What every engine must do: logs of tasks."""

from __future__ import annotations

import os
from pathlib import Path

from paicluster.engines.interface import Phase
from paicluster.logs.log_times import read_log_times
from paicluster.logs.reader import STREAMS
from pairuntime.saved_environment import SAVE_COMMAND
from support.engine_rig import Driven, Rig, mark, task


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def _readable_by_others(folder: Path) -> list[str]:
    """Of the attempt's files, those that any account can open."""
    if any(not one.stat().st_mode & 0o001 for one in (folder, folder.parent)):
        return []  # other engines do not get that far
    return [str(path) for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o004]


def _files_with(text: str, folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if text.encode() in path.read_bytes()]


class LogContract:
    # -- logs --------------------------------------------------------------------------------------

    async def test_megabytes_of_both_streams_are_complete_from_any_offset(self, rig: Rig) -> None:
        one = task(
            rig,
            "seq -f 'out %.0f xxxxxxxxxxxxxxxxxxxxxxxxx' 80000 & "
            "seq -f 'err %.0f yyyyyyyyyyyyyyyyyyyyyyyyy' 60000 >&2; wait",
        )
        out = b"".join(b"out %d xxxxxxxxxxxxxxxxxxxxxxxxx\n" % n for n in range(1, 80001))
        err = b"".join(b"err %d yyyyyyyyyyyyyyyyyyyyyyyyy\n" % n for n in range(1, 60001))
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0
            assert driven.log(one.uid, "stdout") == out
            assert driven.log(one.uid, "stderr") == err
            for offset in (1, 4096, 65537, len(out) - 1, len(out)):
                assert driven.log(one.uid, "stdout", offset) == out[offset:]
            merged = driven.log(one.uid)
            assert len(merged) == len(out) + len(err)
            lines = merged.splitlines(keepends=True)
            assert b"".join(line for line in lines if line.startswith(b"out ")) == out
            assert b"".join(line for line in lines if line.startswith(b"err ")) == err

    async def test_times_of_output_are_recorded(self, rig: Rig) -> None:
        one = task(rig, "echo one; echo two >&2; sleep 4; echo three")
        async with Driven(rig) as driven:
            await driven.run(one)
            found = read_log_times(driven.engine.log_folder(one.uid), "all", 0, 1 << 20)
            assert found is not None and found.precision_ms == 1000
            (first, first_ms), *_, (last, last_ms) = found.times
            assert (first, last) == (0, len("one\ntwo\n"))
            assert 1000 <= last_ms - first_ms < 60_000

    async def test_lines_written_in_pieces_are_not_split_in_the_merged_log(self, rig: Rig) -> None:
        half = "for n in $(seq 150); do printf %s A$n-; printf %s B$n-; echo C$n; done"
        one = task(rig, f"{{ {half}; }} & {{ {half.replace('A$n', 'a$n')}; }} >&2; wait")
        async with Driven(rig) as driven:
            await driven.run(one)
            lines = driven.log(one.uid).decode().splitlines()
        for letter in "Aa":
            assert [line for line in lines if line[0] == letter] == [
                f"{letter}{n}-B{n}-C{n}" for n in range(1, 151)
            ]

    async def test_binary_output_passes_unchanged(self, rig: Rig, tmp_path: Path) -> None:
        data = bytes(range(256)) * 512 + os.urandom(100_000)
        (tmp_path / "data").write_bytes(data)
        one = task(rig, f"cat {tmp_path / 'data'}")
        async with Driven(rig) as driven:
            await driven.run(one)
            assert driven.log(one.uid, "stdout") == data
            assert driven.log(one.uid) == data
            assert driven.log(one.uid, "stderr") == b""

    async def test_last_line_without_a_newline_is_kept(self, rig: Rig) -> None:
        one = task(rig, "printf 'no end'")
        async with Driven(rig) as driven:
            await driven.run(one)
            assert [driven.log(one.uid, stream) for stream in STREAMS] == [b"no end", b"no end", b""]

    async def test_a_line_can_be_read_while_the_task_runs(self, rig: Rig) -> None:
        one = task(rig, "echo now; sleep 600")
        async with Driven(rig) as driven:
            await driven.launch(one)
            for stream in ("stdout", "all"):
                await driven.wait_for_output(one.uid, b"now\n", stream)
            assert (await driven.look(one.uid)).phase is Phase.RUNNING
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_output_through_tee_is_not_lost(self, rig: Rig) -> None:
        one = task(rig, "exec > >(tee copy.txt) 2>&1\nseq 20000\necho last")
        async with Driven(rig) as driven:
            await driven.run(one)
            expected = b"".join(b"%d\n" % n for n in range(1, 20001)) + b"last\n"
            assert driven.log(one.uid, "stdout") == expected

    async def test_log_tail_returns_the_end_of_the_log(self, rig: Rig) -> None:
        one = task(rig, "seq 1000")
        async with Driven(rig, log_segment=512, log_limit=1 << 20) as driven:
            await driven.run(one)
            whole = driven.log(one.uid)
            for size in (1, 100, 2000, 1 << 20):
                assert await driven.engine.log_tail(one.uid, size) == whole[-size:]

    async def test_log_limit_drops_the_oldest_part_and_offsets_stay(self, rig: Rig) -> None:
        one = task(rig, "seq -w 100000")  # 700 000 bytes
        async with Driven(rig, log_limit=64 << 10, log_segment=16 << 10) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0
            for stream in ("stdout", "all"):
                first = driven.reader(one.uid, stream).read(0, 7)
                assert 700_000 - (96 << 10) <= first.offset < 700_000
                rest = driven.log(one.uid, stream, first.offset)
                assert first.offset + len(rest) == 700_000
                expected = b"".join(b"%06d\n" % n for n in range(1, 100001))
                assert rest == expected[first.offset :]

    async def test_secret_written_in_two_pieces_is_masked(self, rig: Rig) -> None:
        one = task(
            rig,
            "printf 'a:hunter2-secret;'; printf hunter2-; sleep 0.2; printf 'secret;\\n'; "
            "echo hunter2-secret >&2; printf hunter2-",
            secrets=("hunter2-secret",),
        )
        async with Driven(rig) as driven:
            await driven.run(one)
            assert driven.log(one.uid, "stdout") == b"a:******;******;\nhunter2-"
            assert driven.log(one.uid, "stderr") == b"******\n"
            assert b"hunter2-secret" not in driven.log(one.uid)

    async def test_secret_reaches_only_the_task(self, rig: Rig, tmp_path: Path) -> None:
        secret = f"swordfish-{mark()}"
        go = tmp_path / "go"
        script = f'test "$GIVEN" = {secret} && echo same\n{SAVE_COMMAND}\n'
        script += f"echo up; until [ -e {go} ]; do sleep 0.02; done"
        one = task(rig, script, environment={"GIVEN": secret}, secrets=(secret,))
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            shown = [line for line in _command_lines() if secret in line]
            readable = _readable_by_others(driven.engine.log_folder(one.uid))
            go.touch()
            assert (await driven.ended(one.uid)).exit_code == 0
            assert driven.log(one.uid) == b"same\nup\n"
            left = _files_with(secret, driven.engine.log_folder(one.uid))
        assert shown == []
        assert readable == []
        assert left == [], "its files with secrets are removed when it has ended"
