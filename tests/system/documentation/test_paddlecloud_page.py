"""docs/paddlecloud.md: its commands print what it shows, its files are read, and its tests exist."""

import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest

from openpaisdk.paddlecloud.datacenters import DatacenterConfig
from support.cli_user import until
from support.paths import REPOSITORY, TESTS

PAGE = (REPOSITORY / "docs/paddlecloud.md").read_text()
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# What differs from run to run, as the page shows it.
VARIABLE = {
    r"x63f": r"[a-z0-9]{4}",
    r"…": r".*",
    r"2026\-05\-15T05:44:19Z": r"\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ",
    r"2026\-05\-15\ 05:44:19": r"\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d",
    r"\ 2s$": r" +\\d+s",
}


def pattern(shown: str) -> re.Pattern[str]:
    """The page's text of an output, for the user who runs the test."""
    user = pwd.getpwuid(os.getuid()).pw_name
    lines = []
    for line in shown.replace("/home/root/", f"/home/{user}/").splitlines():
        text = re.escape(re.sub(r"^root(?= +paddle)", user, line))
        for name, form in VARIABLE.items():
            text = re.sub(re.escape(name) if name in ("x63f", "…") else name.replace("\\", r"\\"), form, text)
        lines.append("(?:.*\n)*?" if line == "…" else re.sub(r"(\\ )+", r" +", text) + " *\n")
    return re.compile("".join(lines))


@pytest.mark.slow
def test_commands_print_what_the_page_shows(new_user) -> None:
    environment = new_user.env(USER=pwd.getpwuid(os.getuid()).pw_name)
    steps = [
        step for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for step in STEP.findall(block)
    ]
    assert len(steps) > 15

    def run(command: str) -> str:
        # The notice of the first command, that it starts the cluster, is not on the page.
        script = f"cd {new_user.project}; {{ {command}\n}} 2>&1"
        done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
        return "".join(
            line for line in done.stdout.splitlines(True) if not line.startswith("Starting the embedded")
        )

    for command, shown in steps:
        if command == "echo $?":
            continue  # the status of the step before, below
        output = ""

        def prints(command=command, shown=shown) -> bool:
            nonlocal output
            output = run(command.replace("'/pfs/local/home/$USER", '"/pfs/local/home/$USER"\''))
            return pattern(shown).fullmatch(output) is not None

        if re.match(r"paddlecloud (get|logs)", command):
            until(prints, 60)  # the job takes a moment
        else:
            assert prints(), (command, shown, output)


def test_wrong_command_line_has_the_status_of_the_page(new_user) -> None:
    (new_user.project / "job_word_emb").mkdir()
    assert "paddlecloud submit -memory 1.5Q ./job_word_emb\n" in PAGE
    done = new_user.run(["paddlecloud", "submit", "-memory", "1.5Q", "./job_word_emb"])
    assert (done.status, f"$ echo $?\n{done.status}\n" in PAGE) == (2, True)


@pytest.mark.parametrize("number", range(3))
def test_each_form_of_the_configuration_is_read(number: int, tmp_path: Path, monkeypatch) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".paddle").mkdir()
    (tmp_path / ".paddle/config").write_text(blocks[number])
    found = DatacenterConfig.load().select()
    assert found is not None
    assert found.name == ("datacenter1", "datacenter1", "datacenter2")[number]


def test_tests_of_the_table_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 30
    for file, test in named:
        assert re.search(rf"^(async )?def {test}\(", (TESTS / file).read_text(), re.MULTILINE), (file, test)
