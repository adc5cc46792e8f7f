"""README: its tour runs, block by block, on a fresh machine; its commands and links exist."""

import re
import shutil
from pathlib import Path

import pytest

from support.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)```", re.DOTALL)


def tour() -> list[str]:
    section = README.split("## Five-minute tour")[1].split("\n## ")[0]
    return [block for not_run, block in BLOCK.findall(section) if not not_run]


def test_every_block_of_the_tour_runs(new_user) -> None:
    printed = ""
    for block in tour():
        done = new_user.run(["bash", "-euo", "pipefail", "-c", block])
        assert done.status == 0, (block, done)
        printed += done.out
    for text in ("step 4  loss 0.200", "1\n2\n3\nstep 0", "it worked", "it was stopped", "STOPPED", "local"):
        assert text in printed, text


def test_only_blocks_for_remote_clusters_are_not_run() -> None:
    assert [b.split()[1] for not_run, b in BLOCK.findall(README) if not_run] == ["add-cluster"]


def test_commands_of_the_readme_are_make_targets() -> None:
    commands = re.findall(r"^make (\S+)", BLOCK.search(README)[2], re.MULTILINE)
    assert commands == ["quickstart", "test"]
    makefile = (REPOSITORY / "Makefile").read_text()
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in commands)


def test_links_of_the_pages_exist() -> None:
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), (page.name, link)


def test_quickstart_example_reduces_its_loss(user) -> None:
    shutil.copytree(REPOSITORY / "examples/quickstart", user.project, dirs_exist_ok=True)
    done = user.pai("sub", "--follow", "--", "python", "train.py")
    assert done.status == 0, done
    found = re.findall(r"loss (\S+)  accuracy (\S+)%", done.out)
    losses, accuracies = [float(loss) for loss, _ in found], [float(a) for _, a in found]
    assert losses[-1] < losses[0] / 10 and accuracies[-1] > 95
    folder = re.search(r"Its files are in (\S+)", done.err)[1].replace("~", str(user.home))
    assert (Path(folder) / "model.json").exists()


def test_quickstart_example_needs_only_the_standard_library() -> None:
    import sys

    for path in (REPOSITORY / "examples/quickstart").glob("*.py"):
        imported = re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
        assert set(imported) <= sys.stdlib_module_names


@pytest.mark.slow
def test_make_quickstart_works_on_a_fresh_clone(new_user) -> None:
    clone = new_user.project / "clone"
    done = new_user.run(["git", "clone", "-q", str(REPOSITORY), str(clone)])
    assert done.status == 0, done
    # It brings packages from the index, however far that is.
    without_bytecode = {"PIP_COMPILE": "0"}  # of packages that are hardly used here
    done = new_user.run(["make", "-C", str(clone), "quickstart"], env=without_bytecode, limit_s=900)
    assert done.status == 0 and "accuracy" in done.out, done
    assert "SUCCEEDED" in done.err and "Its files are in" in done.err, done
    assert "/#/sign-in?code=" in done.out, "the address of the web portal"
