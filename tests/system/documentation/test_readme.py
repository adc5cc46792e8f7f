"""README: its first commands, in a fresh clone, and the program that they run."""

import re
import shutil
from pathlib import Path

import pytest

from support.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)```", re.DOTALL)


def test_commands_of_the_readme_are_make_targets() -> None:
    commands = re.findall(r"^make (\S+)", BLOCK.search(README)[2], re.MULTILINE)
    assert commands == ["quickstart", "test"]
    makefile = (REPOSITORY / "Makefile").read_text()
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in commands)


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


@pytest.mark.slow(400)
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
