"""TensorBoard and Jupyter themselves, opened from the page of a job at the address of its app."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.browser import Page
from support.ports import free_port
from support.server_fixture import Cluster, eventually, job

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.xdist_group("portal")]

# Programs of the tests' environment, which only an embedded cluster gives to its tasks.
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
WRITE_EVENTS = f"""exec {sys.executable} -c '
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("events")
for step in range(10):
    loss = Summary.Value(tag="loss_of_the_job", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[loss])))
writer.flush()
print("written", flush=True)
time.sleep(600)
'"""


def test_tensorboard_of_the_plugin_shows_what_the_job_logged(own_page: Page, own: Cluster) -> None:
    board = {"logdir": {"run": "events"}, "port": free_port()}
    plugins = [{"plugin": "tensorboard", "parameters": board}]
    extras = {"com.microsoft.pai.runtimeplugin": plugins, "openpaisdk": {"environment": ENVIRONMENT}}
    own.submit(job("with-board", WRITE_EVENTS, memory_mb=2048, extras=extras))
    eventually(lambda: b"written" in own.log_of("with-board"), "the events")
    own_page.evaluate(f"location.hash = '#/jobs/{own.user}~with-board?tab=apps'")
    own_page.wait_for_text("TensorBoard main[0], port")

    def is_open() -> bool:
        """TensorBoard listens some seconds after its start; until then the page says so."""
        own_page.click("button", "Open TensorBoard of main[0]")
        own_page.wait_for("document.querySelector('.apps button:disabled') === null")
        return "Nothing listens on port" not in own_page.text

    eventually(is_open, "TensorBoard")
    shown = own_page.next_page()
    # Everything below is in shadow roots, so its own data are read, as its page reads them.
    shown.wait_for("document.querySelector('tb-webapp') !== null && document.title === 'TensorBoard'")
    tags = "fetch('data/plugin/scalars/tags').then((r) => r.json()).then((t) => JSON.stringify(t))"
    shown.wait_for(f"{tags}.then((t) => t.includes('loss_of_the_job'))")
    shown.wait_for("document.body.innerText.includes('loss_of_the_job')")
    own.stop("with-board")


# A client of Jupyter's kernels, as its own page is one: REST, then a WebSocket.
RUN_CELL = """
(async () => {
  const started = await fetch("api/kernels", {method: "POST", body: "{}"});
  const {id} = await started.json();
  const url = new URL(`api/kernels/${id}/channels?session_id=one`, location.href.replace(/^http/, "ws"));
  const socket = new WebSocket(url);
  return new Promise((resolve, reject) => {
    socket.onerror = () => reject(new Error("no WebSocket"));
    socket.onopen = () => socket.send(JSON.stringify({
      channel: "shell", buffers: [], parent_header: {}, metadata: {},
      header: {msg_id: "1", msg_type: "execute_request", session: "one", username: "", version: "5.3"},
      content: {code: CODE, silent: false},
    }));
    socket.onmessage = ({data}) => {
      const message = JSON.parse(data);
      if (message.msg_type === "stream") resolve(message.content.text);
      if (message.msg_type === "error") reject(new Error(message.content.evalue));
    };
  });
})()
"""


def test_jupyter_runs_a_cell_through_its_web_socket(own_page: Page, own: Cluster) -> None:
    serve = (
        f"exec {sys.executable} -m jupyter_server --allow-root --no-browser --ip=127.0.0.1"
        " --port=$PAI_PORT_LIST_main_0_jupyter --IdentityProvider.token=secret-of-jupyter"
        " --ServerApp.disable_check_xsrf=True"
    )
    own.submit(job("with-jupyter", serve, memory_mb=1024, ports={"jupyter": 1}))
    eventually(lambda: b"is running at" in own.log_of("with-jupyter"), "Jupyter")
    own_page.evaluate(f"location.hash = '#/jobs/{own.user}~with-jupyter?tab=apps'")
    own_page.click("button", "Open Jupyter of main[0]")
    jupyter = own_page.next_page()
    jupyter.wait_for_text("A Jupyter Server is running.")
    # Jupyter's own sign-in stays: the cluster's ticket opens the way to it, no more.
    assert jupyter.evaluate("fetch('/api/kernels').then((r) => r.status)") == 403
    jupyter.evaluate("location.href = '/login'")
    jupyter.wait_for("document.querySelector('input[name=password]') !== null")
    jupyter.fill("input[name=password]", "secret-of-jupyter")
    jupyter.press("Enter")
    jupyter.wait_for("!location.href.includes('login')")
    jupyter.evaluate("history.replaceState(null, '', '/')")
    code = "import os; print('cell ran in', os.environ['PAI_JOB_NAME'], 6 * 7)"
    said = jupyter.evaluate(RUN_CELL.replace("CODE", json.dumps(code)))
    assert said == f"cell ran in {own.user}~with-jupyter 42\n"
    own.stop("with-jupyter")


def test_page_of_an_interactive_notebook_opens_it_again(own_page: Page, own: Cluster) -> None:
    # As `pai notebook-job --interactive` submits it, with another web server in the place of Jupyter.
    serve = (
        "export JUPYTER_TOKEN=abcd",
        ": pai-runtime notebook-server demo.ipynb",
        f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PAI_PORT_LIST_main_0_jupyter",
    )
    own.submit(job("with-notebook", *serve, ports={"jupyter": 1}))
    own.wait_state("with-notebook", "RUNNING")
    own_page.evaluate(f"location.hash = '#/jobs/{own.user}~with-notebook'")

    def is_open() -> bool:
        own_page.click("button", "Open it in Jupyter")
        own_page.wait_for("document.querySelector('.notice button:disabled') === null")
        return "Nothing listens on port" not in own_page.text

    eventually(is_open, "the server")
    opened = own_page.next_page()
    opened.wait_for_text("Directory listing")
    assert opened.evaluate("location.search") == "?token=abcd"
    own.stop("with-notebook")
    own_page.wait_for("!document.body.innerText.includes('Open it in Jupyter')")
