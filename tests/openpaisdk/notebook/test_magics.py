"""`%pai` and `%%pai` in a real kernel."""

import pytest

pytestmark = pytest.mark.slow


def test_line_magic_runs_a_command_of_pai(kernel) -> None:
    done = kernel.run("name = 'from_magic_'\n%pai sub --no-sources --mem 32m --wait -j {name}$ echo hi")
    assert not done.error and done.out.startswith("from_magic_"), done
    done = kernel.run("%pai list-jobs")
    assert "from_magic_" in done.out and "SUCCEEDED" in done.out, done
    done = kernel.run("%pai sub --no-sources --mem 32m -f 'echo out; echo more'")
    assert done.out == "out\nmore\n", done


def test_error_of_a_command_is_a_sentence_and_fails_the_cell(kernel) -> None:
    done = kernel.run("%pai job-status nowhere")
    assert "There is no job 'nowhere' on the cluster local." in done.err, done
    assert done.error == [
        "CellError",
        "pai job-status ended with status 1.",
        "pai: pai job-status ended with status 1.",
    ]
    done = kernel.run("%pai nonsense")
    assert "There is no command 'nonsense'" in done.err and done.error, done
    done = kernel.run("%pai sub 'open")
    assert done.error[2:] == ["pai: This line cannot be split into words: No closing quotation."], done


def test_interrupt_ends_the_command(kernel) -> None:
    line = "%pai sub --no-sources --mem 32m -j endless_$ -f 'echo begun; sleep 600'"
    done = kernel.run(line, interrupt_when="begun")
    assert done.error[2:] == ["pai: pai sub was interrupted."], done
    assert "the job continues" in done.err, done
    # Of every thread: a child belongs to the one that started it.
    children = (
        "[pid for file in glob.glob('/proc/self/task/*/children') for pid in open(file).read().split()]"
    )
    left = kernel.run(f"import glob\nprint({children})")
    assert left.out == "[]\n", left
    stop = (
        "from openpaisdk import Cluster\nfor job in Cluster().jobs(state='RUNNING'): Cluster().stop(job.name)"
    )
    assert not kernel.run(stop).error


def test_cell_runs_as_a_job_and_variables_travel(kernel) -> None:
    kernel.run("numbers, factor = [1, 2, 3], 10\ndef scale(x): return x * factor")
    done = kernel.run(
        "%%pai --mem 128m --in numbers,scale --out total,where\n"
        "from openpaisdk.runtime import where as _where\n"
        "where = str(_where())\n"
        "total = sum(scale(n) for n in numbers)\n"
        "print('in the job')\n"
        "{'total': total}"
    )
    assert not done.error, done
    assert done.out == "in the job\n{'total': 60}\n", done
    assert "SUCCEEDED" in done.html and "RUNNING" not in done.html, done
    assert kernel.run("print(total, where)").out == "60 batch\n"


def test_output_of_a_cell_is_live(kernel) -> None:
    """The cell ends only after the notebook has shown its first line."""
    marker = kernel.folder / "seen"
    code = (
        f"%%pai --mem 128m\nimport os, time\nprint('first')\n"
        f"while not os.path.exists({str(marker)!r}): time.sleep(0.02)\nprint('second')"
    )
    done = kernel.run(code, on_output=lambda result: "first" in result.out and marker.touch())
    assert done.out == "first\nsecond\n", done


def test_cell_that_fails_shows_its_traceback_and_a_sentence(kernel) -> None:
    done = kernel.run("%%pai --mem 128m\nx = 1\nraise ValueError('boom')")
    assert 'File "<cell>", line 2, in <module>' in done.out and "raise ValueError('boom')" in done.out, done
    assert "cell_call" not in done.out and "function_call" not in done.out, done
    assert done.error[0] == "CellError" and len(done.error) == 3, done
    assert (
        done.error[1].startswith("The cell failed in the job cell_") and "ValueError: boom" in done.error[1]
    )


@pytest.mark.parametrize(
    ("line", "body", "sentence"),
    [
        ("--gpus 8", "pass", "%%pai has no option --gpus"),
        ("--array 3", "pass", "has no option --array"),
        ("--in nothing_here", "pass", "--in nothing_here: the notebook has no such variable."),
        ("--out 1x", "pass", "--out 1x: this is not the name of a variable."),
        ("", "!ls", "Line 1 of the cell is not Python: ! and % are IPython's, and a job has Python only."),
        ("", "def", "Line 1 of the cell is not Python: invalid syntax."),
        ("", "\n", "The cell is empty."),
        ("-a nowhere", "pass", "nowhere"),
        ("--mem 128m --out absent", "pass", "the cell leaves no variable 'absent', which --out names"),
        ("--in handle", "pass", "cannot be sent to a job"),
    ],
)
def test_wrong_cell_is_answered_with_a_sentence(kernel, line: str, body: str, sentence: str) -> None:
    kernel.run("import threading; handle = threading.Lock()")
    done = kernel.run(f"%%pai {line}\n{body}")
    assert done.error and sentence in done.error[1], done
    assert len(done.error) <= 4 and not any("Traceback" in text for text in done.error), done


def test_help_of_a_cell_lists_its_options(kernel) -> None:
    done = kernel.run("%%pai --help\npass")
    assert not done.error and "--in NAMES" in done.out and "--gpu N" in done.out, done
    assert "--array" not in done.out and "--preview" not in done.out, done


def test_interrupt_of_a_cell_stops_its_job(kernel) -> None:
    done = kernel.run(
        "%%pai --mem 128m -j halted\nimport time\nprint('begun')\ntime.sleep(600)", interrupt_when="begun"
    )
    assert done.error[2:] == ["pai: The cell was interrupted, and its job halted was stopped."], done
    done = kernel.run("from openpaisdk import Job\nprint(Job('halted').wait(progress=False))")
    assert done.out == "STOPPED\n", done
    assert kernel.run("print(1)").out == "1\n"
