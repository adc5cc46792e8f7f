"""Submit: the walk of OpenPAI's introduction, the form and the editor in step, problems as one types."""

from __future__ import annotations

import json

import pytest

from support.browser import Page
from support.portal import NewPage
from support.server_fixture import eventually
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
    assert page.address.endswith("#/jobs")
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
    page.wait_for("document.querySelectorAll('.problems li').length > 0")
    assert "Line 5" in page.text and "taskRoles" in page.text
    page.click("button", "Submit")
    page.wait_for("document.querySelector('.button.primary').innerText === 'Submit'")
    assert page.address.endswith("#/submit")


def test_existing_name_is_reported_where_the_job_was_written(new_page: NewPage, cluster: TeamCluster) -> None:
    page = new_page(at="/submit")
    page.fill("[name=name]", "twice")
    page.click("button", "Submit")
    page.wait_for_text("twice is submitted.")
    page.click("nav a", "Submit Job")
    page.fill("[name=name]", "twice")
    page.click("button", "Submit")
    page.wait_for("document.querySelector('.notice.bad')?.innerText.includes('twice')")
