"""Which notebook a cell is in, with a real Jupyter server."""

import pytest

from openpaisdk.jobs.current_notebook import current_notebook
from paiprotocol.errors import UsageError
from support.notebooks import write_notebook

FIND = "from openpaisdk.jobs.current_notebook import current_notebook\nprint(current_notebook())"


@pytest.mark.slow
def test_a_cell_finds_its_notebook_also_after_a_rename(jupyter) -> None:
    path = jupyter.folder / "find.ipynb"
    write_notebook(path, "x = 1", FIND)
    cells = jupyter.open("find.ipynb")
    assert cells.run(FIND).out == f"{path}\n"
    path.rename(jupyter.folder / "renamed.ipynb")
    change = {"path": "renamed.ipynb", "name": "renamed.ipynb"}
    jupyter.request("PATCH", f"api/sessions/{cells.session}", change)
    assert cells.run(FIND).out == f"{jupyter.folder}/renamed.ipynb\n"


@pytest.mark.slow
def test_a_notebook_that_is_not_saved_is_rejected(jupyter) -> None:
    write_notebook(jupyter.folder / "unsaved.ipynb", "x = 1")
    done = jupyter.open("unsaved.ipynb").run(FIND)
    assert done.error[0] == "UsageError", done
    assert "unsaved.ipynb has changes that are not saved, at least in this cell." in done.error[1], done


@pytest.mark.slow
def test_a_kernel_of_no_notebook_says_what_to_name(kernel) -> None:
    done = kernel.run(FIND)
    assert "The file of this notebook cannot be found out." in done.error[1], done
    vscode = kernel.folder / "vscode.ipynb"
    write_notebook(vscode, FIND)
    kernel.run(f"__vsc_ipynb_file__ = {str(vscode)!r}")
    assert kernel.run(FIND).out == f"{vscode}\n"


def test_a_program_is_no_cell() -> None:
    with pytest.raises(UsageError, match=r"This program is not a cell of a notebook\."):
        current_notebook()
