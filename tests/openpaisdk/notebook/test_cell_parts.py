"""Parts of a cell's job that need neither kernel nor cluster."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from openpaisdk.functions import function_cluster
from openpaisdk.notebook.cell_error import CellError
from openpaisdk.notebook.cell_options import parse_cell_options
from openpaisdk.output.live_html import View, is_notebook, show_live
from paiprotocol.errors import UsageError
from pairuntime.task.cell_call import run_cell


def test_cell_leaves_the_variables_that_are_named(capsys) -> None:
    assert run_cell("b = a + 1\nb * 2", {"a": 1}, ["b"]) == {"b": 2}
    assert capsys.readouterr().out == "4\n"
    run_cell("None", {}, [])
    run_cell("'quiet';", {}, [])
    assert capsys.readouterr().out == ""


def test_functions_of_a_cell_see_its_variables() -> None:
    assert run_cell("n = 2\ndef f(): return n\nm = [f() for _ in range(n)]", {}, ["m"]) == {"m": [2, 2]}


def test_options_of_a_cell_are_those_of_sub(here) -> None:
    options = parse_cell_options(
        ["--gpu", "2", "--in", "a, b", "--in", "c,a", "--out=d", "--no-sources", "-f"]
    )
    assert (options.inputs, options.outputs, options.job["gpu"]) == (["a", "b", "c"], ["d"], 2)
    assert options.job["sources"] == [] and parse_cell_options([]).job == {}
    for option in ("--preview", "--strict", "--fetch=x", "--array=2", "--pip-path=pip", "-ojson"):
        with pytest.raises(UsageError, match="has no option"):
            parse_cell_options([option])


def test_error_of_a_magic_is_shown_as_sentences_without_control_characters() -> None:
    assert CellError("It \x1b]0;failed.", hint="Do this.")._render_traceback_() == [
        "pai: It \\x1b]0;failed.",
        "     Do this.",
    ]


def test_outside_a_notebook_nothing_is_live() -> None:
    shell = InteractiveShell.instance()
    assert not is_notebook() and not show_live("<p>", "p", lambda: View("<p>"))
    assert shell.run_cell("%load_ext openpaisdk").success and "pai" in shell.magics_manager.magics["cell"]


def test_cell_in_a_terminal_prints_the_states_of_its_job(here, capsys, monkeypatch) -> None:
    # Clusters are kept by their aliases, and this test is not the only user of this process.
    monkeypatch.setattr(function_cluster, "_clusters", {})
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext openpaisdk")
    done = shell.run_cell(
        "%%pai --mem 128m --no-sources -j in_a_terminal --out y\ny = 6 * 7\nprint('from the job')"
    )
    printed = capsys.readouterr().out
    assert done.success and shell.user_ns["y"] == 42
    assert "from the job\n" in printed and "in_a_terminal on local: SUCCEEDED\n" in printed
