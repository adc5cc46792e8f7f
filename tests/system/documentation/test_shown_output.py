"""The comparison of what a page shows with what was printed: neither too strict nor too lenient."""

from __future__ import annotations

import pytest

from support.page_blocks import _blocks, _with_shown_output
from support.shown_output import ShownOutput

ROW, OTHER_ROW = "echo_ab12cd  2026-05-15 05:44:19      0.1s\n", "echo_x  2027-01-02 03:04:05  2m 3s\n"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("a …\n", "a b c\n"),
        ("a\n…\nz\n", "a\nb\nc\nz\n"),
        ("a\n…\nz\n", "a\nz\n"),
        (f"NAME         STATE\n{ROW}", f"NAME    STATE\n{OTHER_ROW}"),
        ("05:44:19  done\n", "23:59:00  done\n"),
        ("2.0 MB (checked in 0.1 s)\n", "501 kB (checked in 12.3 s)\n"),
        ("paddle-job-x63f runs, paddle-job-x63f ends\n", "paddle-job-1abc runs, paddle-job-1abc ends\n"),
    ],
)
def test_same_output_matches(shown: str, printed: str) -> None:
    assert ShownOutput().matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one\n", "one\ntwo\n"),
        ("one\ntwo\n", "one\n"),
        ("", "anything\n"),
        ("loss 0.5\n", "loss 0.25\n"),
        ("a.c\n", "abc\n"),
        ("05:44:19\n", "5:44:19\n"),
        ("NAME\ntagged\nfirst\n", "NAME\nfirst\n"),
        ("paddle-job-x63f runs, paddle-job-x63f ends\n", "paddle-job-1abc runs, paddle-job-2abc ends\n"),
    ],
)
def test_other_output_does_not_match(shown: str, printed: str) -> None:
    assert not ShownOutput().matches(shown, printed)


def test_random_letters_are_the_same_in_the_whole_page() -> None:
    compared = ShownOutput()
    assert compared.matches("train_ab12cd\n", "train_7q\n")
    assert compared.matches("Stopping train_ab12cd\n", "Stopping train_7q\n")
    assert not compared.matches("Stopping train_ab12cd\n", "Stopping train_8q\n")
    assert compared.matches("sleep_ab12cd\n", "sleep_1\n"), "letters of another name"


def test_blocks_of_a_page_have_their_output() -> None:
    page = """
```bash
pai list-jobs
```

```text
none
```

Words between them.

```text
no output
```

<!-- not run: needs Slurm -->
```sh
sbatch
```

```python
print(1)  # 1
print("x", end="")    # x
```
"""
    blocks = list(_with_shown_output(list(_blocks("page", page.splitlines()))))
    assert [(block.language, block.shown, block.not_run) for block in blocks] == [
        ("bash", "none\n", ""),
        ("text", None, ""),
        ("text", None, ""),
        ("sh", None, "needs Slurm"),
        ("python", "1\nx\n", ""),
    ]


def test_console_has_steps_with_their_output() -> None:
    (block,) = _with_shown_output(
        list(_blocks("page", ["```console", "$ a", "1", "$ b", "$ c \\", "> d", "2", "```"]))
    )
    assert list(block.steps()) == [("a", "1\n"), ("b", ""), ("c \\\nd", "2\n")]
