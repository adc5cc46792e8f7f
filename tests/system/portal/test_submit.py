"""Submit: the walk of OpenPAI's introduction, the form and the editor in step, problems as one types."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import pytest

from support.browser import Page
from support.portal import NewPage
from support.server_fixture import eventually, job
from support.team_cluster import PASSWORD, TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

COMMAND = (
    "apt update && apt install -y git && git clone https://github.com/tensorflow/models && "
    "cd models/research/slim && python download_and_convert_data.py --dataset_name=cifar10 "
    "--dataset_dir=/tmp/data && python train_image_classifier.py --dataset_name=cifar10 "
    "--dataset_dir=/tmp/data --max_number_of_steps=1000"
)
EDITOR = "document.querySelector('.editor').shadowRoot.querySelector('.cm-content')"


def hello_world(name: str, command: str, *, cpu: int, memory_mb: int, gpu: int) -> str:
    role = {
        "name": "default",
        "taskNumber": 1,
        "cpuNumber": cpu,
        "memoryMB": memory_mb,
        "gpuNumber": gpu,
        "command": command,
    }
    image = "tensorflow/tensorflow:1.12.0-gpu-py3"
    return json.dumps({"jobName": name, "image": image, "taskRoles": [role]}, indent=4)


def walk(page: Page, content: str) -> None:
    """The steps of OpenPAI's introduction: from the sign-in to the submitted job."""
    page.fill("input[name=username]", "alice")
    page.fill("input[name=password]", PASSWORD)
    page.click("button", "Sign in")
    page.wait_for("document.querySelector('h1')?.innerText === 'Jobs'")
    page.click("nav a", "Submit Job")
    page.click("button", "JSON")
    page.fill("dialog textarea", content)
    page.click("dialog button", "Save")
    page.click("button", "Submit")


def test_hello_world_job_as_written_is_accepted_and_waits_with_a_reason(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    # All GPUs are in use: the job as written asks for one.
    busy = json.loads(hello_world("busy", "sleep 600", cpu=1, memory_mb=64, gpu=4))
    assert cluster.ask("POST", "/api/v1/jobs", busy).status == 202
    cluster.wait_state("busy", "RUNNING")
    page = new_page(None, at="/")
    walk(page, hello_world("tensorflow-cifar10", COMMAND, cpu=4, memory_mb=8192, gpu=1))
    row = "document.querySelector('tr:has(a[title=tensorflow-cifar10])')?.innerText ?? ''"
    page.wait_for(f"({row}).includes('Waiting')")
    page.wait_for("location.hash === '#/jobs'")
    page.wait_for(f"({row}).includes('GPU') || ({row}).includes('gpu')")
    page.click("a", "tensorflow-cifar10")
    page.wait_for("document.querySelector('.notice.wait')?.innerText.length > 10")
    for name in ("tensorflow-cifar10", "busy"):
        cluster.stop(name)
        eventually(lambda name=name: cluster.status(name)["state"] == "STOPPED", name)


def test_hello_world_job_offline_goes_from_waiting_to_succeeded(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    busy = json.loads(hello_world("busy-before", "sleep 600", cpu=1, memory_mb=64, gpu=4))
    assert cluster.ask("POST", "/api/v1/jobs", busy).status == 202
    cluster.wait_state("busy-before", "RUNNING")
    page = new_page(None, at="/")
    command = "echo trained; while [ ! -e go ]; do sleep 0.05; done"
    walk(page, hello_world("offline-cifar10", command, cpu=1, memory_mb=64, gpu=1))
    row = "document.querySelector('tr:has(a[title=offline-cifar10])')?.innerText ?? ''"
    page.wait_for(f"({row}).includes('Waiting')")
    cluster.stop("busy-before")
    page.click("nav a", "Jobs")
    page.click("a", "offline-cifar10")
    state = "document.querySelector('.title .state')?.innerText"
    page.wait_for(f"{state} === 'Running'")
    page.wait_for("document.querySelector('.virtual tbody')?.innerText.includes('127.0.0.1')")
    page.click("a", "Log")
    page.wait_for("document.querySelector('.log')?.textContent.includes('trained')")
    task = cluster.detail("offline-cifar10")["taskRoles"]["default"]["taskStatuses"][0]
    uid = task["containerId"]
    (cluster.home / "tasks" / uid[:2] / uid / "work" / "go").touch()
    page.wait_for(f"{state} === 'Succeeded'")


def test_form_and_editor_show_the_same_job(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page(at="/submit")
    page.fill("[name=name]", "from-the-form")
    page.fill("[name=command]", "echo one\necho two")
    page.fill("[name=memoryMB]", "64")
    page.press("Tab")
    page.wait_for(f"{EDITOR}.innerText.includes('name: from-the-form')")
    page.wait_for(f"{EDITOR}.innerText.includes('memoryMB: 64')")
    page.evaluate(f"{EDITOR}.focus()")
    page.press("a", modifiers=2)
    text = page.evaluate(f"{EDITOR}.innerText").replace("echo two", "echo three")
    page.send("Input.insertText", {"text": "# a comment\n" + text.replace("\n\n", "\n")})
    page.wait_for("document.querySelector('[name=command]')?.value === 'echo one\\necho three'")
    page.fill("[name=name]", "from-both")
    page.wait_for(f"{EDITOR}.innerText.includes('# a comment')")
    page.click("button", "Submit")
    page.wait_for_text("from-both is submitted.")
    cluster.wait_state("from-both", "SUCCEEDED")
    assert cluster.log_of("from-both") == b"one\nthree\n"


def test_problems_are_shown_as_one_types_and_nothing_is_submitted(new_page: NewPage) -> None:
    page = new_page(at="/submit")
    page.click("button", "JSON")
    page.fill(
        "dialog textarea",
        '{\n  "protocolVersion": 2,\n  "name": "wrong",\n  "type": "job",\n  "taskRoles": {}\n}',
    )
    page.click("dialog button", "Save")
    page.wait_for("/Line 5.*taskRoles/s.test(document.querySelector('.problems')?.innerText)")
    page.click("button", "Submit")
    page.wait_for("document.querySelector('.button.primary').innerText === 'Submit'")
    assert page.address.endswith("#/submit")
    page.click("button", "JSON")
    wrong = hello_world("wrong", "true", cpu=1, memory_mb=64, gpu=0).replace(
        '"taskNumber": 1', '"taskNumber": 0'
    )
    page.fill("dialog textarea", wrong)
    page.click("dialog button", "Save")
    page.wait_for("/Line 7.*taskNumber/s.test(document.querySelector('.problems')?.innerText)")


def test_existing_name_is_reported_where_the_job_was_written(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page(at="/submit")
    page.fill("[name=name]", "twice")
    page.click("button", "Submit")
    page.wait_for_text("twice is submitted.")
    page.click("nav a", "Submit Job")
    page.fill("[name=name]", "twice")
    page.click("button", "Submit")
    page.wait_for("document.querySelector('.notice.bad')?.innerText.includes('twice')")


def put_pair(page: Page, one: str, name: str, value: str) -> None:
    """Add a row of a variable or a secret."""
    page.click("button", f"Add a {one}")
    page.fill(f"[aria-label='Name of {one} 1']", name)
    page.fill(f"[aria-label='Value of {name}']", value)


def test_files_variables_and_secrets_of_the_form_reach_the_task(
    new_page: NewPage, cluster: TeamCluster, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "run.sh").write_text('#!/bin/sh\necho "$GREETING"; cat lib/text; ls; [ "$TOKEN" = s3cret ]')
    (project / "lib" / "text").write_text("from the library\n")
    (project / "weights.pt").write_text("large")
    (project / ".gitignore").write_text("*.pt\n")
    page = new_page(at="/submit")
    page.fill("[name=name]", "with-files")
    page.fill("[name=command]", "./run.sh")
    page.drop_files(".drop-zone", project)
    page.wait_for_text("3 files")
    page.wait_for_text("1 left out")
    put_pair(page, "variable", "GREETING", "it's me")
    put_pair(page, "secret", "TOKEN", "s3cret")
    page.wait_for(f"{EDITOR}.innerText.includes('sha256: ')")
    page.wait_for(f"{EDITOR}.innerText.includes('TOKEN: \"******\"')")
    assert "s3cret" not in page.evaluate(f"{EDITOR}.innerText")
    page.click("button", "Submit")
    page.wait_for_text("with-files is submitted.")
    cluster.wait_state("with-files", "SUCCEEDED")
    assert cluster.log_of("with-files") == b"it's me\nfrom the library\nlib\nrun.sh\n"

    # A copy asks for the secret again, and has the files.
    page.click("nav a", "Submit Job")
    page.click("button", "Start from …")
    page.click("dialog button", "with-files")
    page.wait_for_text("The files of the earlier job")
    page.wait_for('document.querySelector("[aria-label=\'Value of GREETING\']")?.value === "it\'s me"')
    page.fill("[name=name]", "with-files-again")
    page.click("button", "Submit")
    page.wait_for_text("The job has secrets without a value: TOKEN.")
    page.fill("[aria-label='Value of TOKEN']", "s3cret")
    page.click("button", "Submit")
    page.wait_for_text("with-files-again is submitted.")
    cluster.wait_state("with-files-again", "SUCCEEDED")


def test_rows_of_the_form_are_tasks_with_their_values(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page(at="/submit")
    page.fill("[name=name]", "swept-by-form")
    page.fill("[name=command]", 'echo "$PAI_TASK_INDEX $lr $text"')
    page.fill("[name=rows]", "lr,text\n0.10")
    page.wait_for_text("Row 1 has 1 values, and there are 2 columns.")
    page.fill("[name=rows]", 'lr,text\n0.10,"a, b"\n2,it\'s')
    page.wait_for(f"{EDITOR}.innerText.includes('gangAllocation: false')")
    page.wait_for("document.querySelector('[name=instances]').value === '2'")
    assert "columns." not in page.text and page.evaluate(
        "document.querySelector('[name=instances]').disabled"
    )
    page.click("button", "Submit")
    page.wait_for_text("swept-by-form is submitted.")
    cluster.wait_state("swept-by-form", "SUCCEEDED")
    logs = [cluster.log_of("swept-by-form", index=index) for index in range(2)]
    assert logs == [b"0 0.10 a, b\n", b"1 2 it's\n"]
    page = new_page(at="/jobs/alice~swept-by-form")
    page.wait_for("document.querySelectorAll('.virtual td.c-value').length === 4")


def test_notebook_of_the_form_runs_with_its_parameters(
    new_page: NewPage, cluster: TeamCluster, tmp_path: Path
) -> None:
    cell = {
        "cell_type": "code",
        "metadata": {},
        "source": "print(f'rate {rate * 2}')",
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"name": "python3", "display_name": "Python 3"}
    content = {"nbformat": 4, "nbformat_minor": 4, "metadata": {"kernelspec": kernel}, "cells": [cell]}
    notebook = tmp_path / "my rates.ipynb"
    notebook.write_text(json.dumps(content))
    page = new_page(at="/submit")
    page.fill("[name=name]", "notebook-of-the-form")
    page.click(".choices input[value=notebook]")
    page.choose_files("[name=notebook]", notebook)
    put_pair(page, "parameter", "rate", "2.5")
    page.wait_for(f"{EDITOR}.innerText.includes(\"pai-runtime notebook -p rate=2.5 'my rates.ipynb'\")")
    # Jupyter of this environment, with its own Python: the machine's may be too old for its packages.
    (runtime,) = (cluster.home / "runtime").glob("*/bin")
    put_pair(page, "variable", "PATH", f"{sysconfig.get_path('scripts')}:{runtime}:/usr/bin:/bin")
    page.fill("[name=memoryMB]", "512")
    page.press("Tab")
    page.wait_for_text("1 file,")
    page.click("button", "Submit")
    page.wait_for_text("notebook-of-the-form is submitted.")
    cluster.wait_state("notebook-of-the-form", "SUCCEEDED")
    assert b"rate 5.0" in cluster.log_of("notebook-of-the-form")


def test_editor_completes_from_the_schema(new_page: NewPage) -> None:
    page = new_page(at="/submit")
    page.wait_for(f"{EDITOR}.innerText.includes('protocolVersion')")
    page.wait_for("document.querySelector('.editor').dataset.schema === 'loaded'")
    root = "document.querySelector('.editor').shadowRoot"
    page.evaluate(f"{EDITOR}.focus()")
    page.press("a", modifiers=2)
    page.send("Input.insertText", {"text": "defaults:\n  "})
    page.insert("virt")
    page.wait_for(f"{root}.querySelector('.cm-completionLabel')?.innerText === 'virtualCluster'")
    page.wait_for(f"{root}.querySelector('.cm-completionInfo')?.innerText.includes('virtual cluster')")
    # The editor ignores keys for a moment after the list has changed; it takes a click at any time.
    page.evaluate(f"{root}.querySelector('li').dispatchEvent(new MouseEvent('mousedown', {{bubbles: true}}))")
    page.wait_for(f"{EDITOR}.innerText.includes('  virtualCluster: ')")
    page.insert("d")
    page.wait_for(f"{root}.querySelector('.cm-completionLabel')?.innerText === 'default'")
    # The schema is that of the version which the text has.
    page.press("a", modifiers=2)
    page.send("Input.insertText", {"text": '{"jobName": "typed", "taskRoles": [{"name": "main", '})
    page.wait_for("document.querySelector('.problems') !== null")
    page.insert('"taskN')
    page.wait_for(f"{root}.querySelector('.cm-completionLabel')?.innerText === 'taskNumber'")
    assert "Show as YAML" not in page.text, "version 1 has no YAML"


def test_number_that_no_job_can_have_is_replaced_in_its_field_too(new_page: NewPage) -> None:
    page = new_page(at="/submit")
    page.wait_for_text("Valid, protocol version 2")
    for field, entered, taken in (("gpu", "-1", "0"), ("cpu", "0", "1"), ("instances", "", "1")):
        page.fill(f"[name={field}]", entered)
        page.press("Tab")
        page.wait_for(f"document.querySelector('[name={field}]').value === '{taken}'")


def test_job_that_can_never_start_is_told_so_before_it_is_submitted(new_page: NewPage) -> None:
    page = new_page(at="/submit")
    page.wait_for_text("Valid, protocol version 2")
    page.fill("[name=cpu]", "5000")
    page.press("Tab")
    page.wait_for("document.querySelector('.submit-bar .notice.wait')?.innerText.includes('5000 cores')")
    page.fill("[name=cpu]", "1")
    page.press("Tab")
    page.wait_for("!document.querySelector('.submit-bar')?.innerText.includes('5000 cores')")


def test_job_starts_from_an_example_or_a_file_and_is_exported(
    new_page: NewPage, cluster: TeamCluster, tmp_path: Path
) -> None:
    page = new_page(at="/submit")
    page.click("button", "Start from …")
    page.click("dialog button", "Train on a GPU")
    page.wait_for("document.querySelector('[name=gpu]')?.value === '1'")
    page.wait_for("document.querySelector('[name=timeLimit]')?.value === '480'")
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps(job("from-a-file", "true")))
    page.click("button", "Start from …")
    page.choose_files("[name=jobFile]", file)
    page.wait_for("document.querySelector('[name=name]')?.value === 'from-a-file'")
    page.click("button", "Show as YAML")
    page.wait_for(f"{EDITOR}.innerText.includes('name: from-a-file')")
    page.wait_for_text("Valid, protocol version 2")
    page.accept_downloads(tmp_path)
    page.click("button", "Export")
    saved = tmp_path / "from-a-file.yaml"
    eventually(lambda: saved.exists() and "name: from-a-file" in saved.read_text(), "the saved file")


def test_unsubmitted_job_is_kept_while_other_pages_are_shown(new_page: NewPage, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("print('hello')")
    page = new_page(at="/submit")
    page.fill("[name=name]", "half-written")
    put_pair(page, "secret", "TOKEN", "s3cret")
    page.drop_files(".drop-zone", tmp_path / "run.py")
    page.wait_for_text("1 file,")
    page.click("nav a", "Jobs")
    page.wait_for("document.querySelector('h1')?.innerText === 'Jobs'")
    page.evaluate("history.back()")
    page.wait_for_text("You changed this job and did not submit it.")
    page.wait_for("document.querySelector('[name=name]').value === 'half-written'")
    page.wait_for("document.querySelector(\"[aria-label='Value of TOKEN']\")?.value === 's3cret'")
    page.wait_for_text("1 file,")
    asks = "!window.dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert page.evaluate(asks), "a reload would lose it"
    page.click("button", "Start again")
    page.wait_for("document.querySelector('[name=name]')?.value.startsWith('hello')")
    assert not page.evaluate(asks)


def test_resubmit_runs_a_copy_with_other_resources(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("first-try_abc234", "[ $PAI_JOB_NAME = alice~second-try ] || sleep 600"))
    cluster.wait_state("first-try_abc234", "RUNNING")
    page = new_page(at="/jobs/alice~first-try_abc234")
    page.click("button", "Resubmit")
    page.fill("dialog [name='main memoryMB']", "96")
    page.fill("dialog [name='main instances']", "2")
    page.fill("dialog [name=name]", "second-try")
    # The page renews itself while the job runs; what the user has typed stays.
    requests = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('_abc234')).length"
    before = page.evaluate(requests)
    page.wait_for(f"{requests} > {before} + 1")
    page.click("dialog button", "Resubmit")
    page.wait_for("document.querySelector('h1')?.innerText === 'second-try'")
    cluster.wait_state("second-try", "SUCCEEDED")
    config = cluster.ask("GET", "/api/v2/jobs/alice~second-try/config").json()
    assert config["taskRoles"]["main"]["instances"] == 2
    assert config["taskRoles"]["main"]["resourcePerInstance"]["memoryMB"] == 96
    cluster.stop("first-try_abc234")
