"""``pai connect-job`` of an interactive notebook whose link this user cannot have."""

from __future__ import annotations

import pytest

from openpaisdk.cli.jobs.logs import connect_job
from openpaisdk.client.models import JobStatus
from paiprotocol.errors import Forbidden, NotFound


class OtherUsersCluster:
    """A cluster with a job of another user: its state may be seen, its tasks may not be entered."""

    alias, user, is_embedded = "team", "alice", False

    def __init__(self, config: str | None):
        self._config = config

    def job_config(self, name: str, user: str = "") -> str:
        if self._config is None:
            raise NotFound("The config of the job does not exist.")
        return self._config

    def job(self, name: str, user: str = "") -> JobStatus:
        return JobStatus({"name": name, "jobStatus": {"username": user, "state": "RUNNING"}})

    def open_session(self, name: str, user: str = "") -> None:
        raise Forbidden("Only the user of a job may run commands in it.")


@pytest.mark.parametrize(
    ("config", "notice"),
    [
        ("commands: [pai-runtime notebook-server a.ipynb]", "Only the user of a job may run commands in it."),
        (None, ""),
    ],
)
def test_states_are_shown_without_a_link(
    config: str | None, notice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("openpaisdk.cli.jobs.logs.open_cluster", lambda *_, **__: OtherUsersCluster(config))
    monkeypatch.setattr(
        "openpaisdk.cli.interactive.interactive_notebook.wait_for_server", lambda *_: (8888, "a.ipynb")
    )
    monkeypatch.setattr("openpaisdk.cli.jobs.logs.wait_for_job", lambda *_, **__: "SUCCEEDED")
    monkeypatch.setattr("openpaisdk.cli.jobs.logs.exit_status", lambda *_: 0)
    assert connect_job(["--user", "bob", "a_notebook"]) == 0
    shown = capsys.readouterr()
    assert notice in shown.err and "token=" not in shown.out
