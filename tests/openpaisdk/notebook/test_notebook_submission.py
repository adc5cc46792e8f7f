"""Notebooks as batch jobs, from Python: `Job.from_notebook` and `submit_notebook`."""

import sys

import pytest

from openpaisdk import Job, PaiError, submit_notebook
from support.notebooks import cell, write_notebook

pytestmark = pytest.mark.slow

WHERE = "from openpaisdk.runtime import where\nprint('runs', where(), rate)"


def test_job_from_a_notebook_runs_it_with_its_folder_and_parameters(here) -> None:
    (here / "data").write_text("content")
    write_notebook(here / "train.ipynb", cell("rate = 1", "parameters"), "print(open('data').read(), rate)")
    job = (
        Job().from_notebook("train.ipynb", parameters={"rate": 3}, mem="512m", python=sys.executable).submit()
    )
    assert job.name.startswith("train_")
    assert job.wait() == "SUCCEEDED" and "content 3" in job.logs(), job.logs()
    named = Job("named_$").from_notebook(here / "train.ipynb", mem="256m", tags=["lab"])
    assert named.name.startswith("named_") and named.has_tag("lab")
    assert named.protocol["taskRoles"]["main"]["resourcePerInstance"]["memoryMB"] == 256


def test_wrong_notebook_is_answered_with_a_sentence(here) -> None:
    (here / "text.ipynb").write_text("no JSON")
    with pytest.raises(PaiError, match="not a notebook"):
        Job().from_notebook("text.ipynb")
    with pytest.raises(PaiError, match=r"absent\.ipynb"):
        submit_notebook("absent.ipynb")
    with pytest.raises(PaiError, match="This program is not a cell of a notebook"):
        submit_notebook()


def test_a_notebook_submits_itself_once(jupyter) -> None:
    """The batch job runs the same cell, which submits nothing there."""
    submit = "%load_ext openpaisdk\njob = submit_notebook(mem='512m', parameters={'rate': 8})"
    write_notebook(jupyter.folder / "self.ipynb", cell("rate = 1", "parameters"), WHERE, submit)
    cells = jupyter.open("self.ipynb")
    assert cells.run("rate = 1").out == "" and cells.run(WHERE).out == "runs local 1\n"
    assert not cells.run(submit).error
    done = cells.run("print(job.name, job.wait(progress=False))\nprint(job.logs())")
    name, state = done.out.split()[:2]
    assert name.startswith("self_") and state == "SUCCEEDED", done
    assert "runs batch 8" in done.out, done
    assert f"This notebook runs as the batch job {name}: nothing is submitted." in done.out, done
    listed = cells.run(
        "from openpaisdk import Cluster\nprint([j.name for j in Cluster().jobs(keyword='self_')])"
    )
    assert listed.out == f"[{name!r}]\n", listed


def test_interactive_kernel_in_a_job_resubmits_with_the_token_of_the_job(here) -> None:
    """A kernel in a task, as an interactive notebook has it: no clusters file, only the job's own token."""
    submit = "import openpaisdk\nif job := openpaisdk.submit_notebook(mem='512m'): print('child', job.name)"
    write_notebook(here / "lab.ipynb", "rate = 2", WHERE, submit)
    (here / "kernel.py").write_text(
        "import json, os\n"
        "from jupyter_client.manager import start_new_kernel\n"
        "env = {**os.environ, 'HOME': os.getcwd(), 'JPY_SESSION_NAME': os.path.abspath('lab.ipynb')}\n"
        "manager, client = start_new_kernel(env=env)\n"
        "def show(message):\n"
        "    content = message['content']\n"
        "    print(content.get('text') or ''.join(content.get('traceback', [])), end='', flush=True)\n"
        "for cell in json.load(open('lab.ipynb'))['cells']:\n"
        "    client.execute_interactive(''.join(cell['source']), output_hook=show)\n"
        "manager.shutdown_kernel(now=True)\n"
    )
    job = (
        Job("lab_$").one_liner(f"{sys.executable} kernel.py", mem="1g", env={"PAI_INTERACTIVE": "1"}).submit()
    )
    assert job.wait() == "SUCCEEDED", job.logs()
    log = job.logs()
    assert "runs interactive 2" in log and "child lab_" in log, log
    child = Job(log.partition("child ")[2].split()[0])
    assert child.wait() == "SUCCEEDED" and "runs batch 2" in child.logs(), child.logs()
