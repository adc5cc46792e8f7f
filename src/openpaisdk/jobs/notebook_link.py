"""Link of an interactive notebook: where its Jupyter server listens in the task, and with which token.

The server announces port and page in the log of its job. A token that the job hides is asked in the task
itself, by its user only: clusters do not return secrets.
"""

from __future__ import annotations

import re

from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient

TOKEN_VARIABLE = "JUPYTER_TOKEN"
PORT_LABEL = "jupyter"
"""Label of the port on which the server listens, if nothing else took it meanwhile."""
READY = re.compile(rb"^Jupyter answers at port (\d+): ([^\n]+)\n", re.MULTILINE)
_READY_WORDS = "Jupyter answers at port "
_SERVER_COMMAND = "pai-runtime notebook-server "
_EXPORTED_TOKEN = re.compile(rf"^export {TOKEN_VARIABLE}=([\w.~-]+)$", re.MULTILINE)


class NotebookServer:
    """The Jupyter server of a running job. ``token`` is empty where the job hides it."""

    __slots__ = ("page", "port", "token")

    def __init__(self, port: int, page: str, token: str = ""):
        self.port = port
        self.page = page
        self.token = token

    def link(self, port: int) -> str:
        """The link at a port of this machine."""
        from urllib.parse import quote

        return f"http://127.0.0.1:{port}/{quote(self.page)}?token={quote(self.token, safe='')}"


def runs_notebook_server(config: str) -> bool:
    """Whether a job runs an interactive notebook; ``config`` is the job as the cluster returns it."""
    return _SERVER_COMMAND in config


def find_notebook_server(cluster: ClusterClient, name: str, user: str, config: str) -> NotebookServer | None:
    """The server that answers in a running job; None: there is none yet, or the cluster cannot tell."""
    from openpaisdk.client.follow_stream import FollowRequest
    from openpaisdk.client.log_search import search_log

    try:
        for frame in search_log(cluster, FollowRequest(name, user), _READY_WORDS):
            if ready := READY.match(frame.data):
                return NotebookServer(
                    int(ready[1]), ready[2].decode("utf-8", "replace"), visible_token(config)
                )
    except PaiError:
        pass
    return None


def visible_token(config: str) -> str:
    """The token of a job that does not hide it: on the embedded cluster it is known to everybody."""
    from openpaisdk.client.job_config import parse_config
    from openpaisdk.client.models import text

    for deployment in _items(parse_config(config).get("deployments")):
        roles = deployment.get("taskRoles")
        for role in roles.values() if isinstance(roles, dict) else ():
            lines = role.get("preCommands") if isinstance(role, dict) else None
            for line in lines if isinstance(lines, list) else ():
                if match := _EXPORTED_TOKEN.search(text({"line": line}, "line")):
                    return match[1]
    return ""


def _items(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def ask_token(cluster: ClusterClient, name: str, user: str = "") -> str:
    """The token, from the environment of the task."""
    from openpaisdk.client.session import STDOUT

    session = cluster.open_session(name, user)
    try:
        session.start(["sh", "-c", f'printf %s "${TOKEN_VARIABLE}"'])
        answer = b""
        while session.exit_status is None:
            answer += b"".join(data for stream, data in session.receive() if stream == STDOUT)
    finally:
        session.close()
    return answer.decode("utf-8", "replace")


def runs_on_this_machine(cluster: ClusterClient, name: str, user: str = "") -> bool:
    """Whether the loopback of the task is that of this machine: the cluster may run its tasks on others."""
    from socket import gethostname

    tasks = cluster.job(name, user).tasks
    return any(task.raw.get("containerNodeName") == gethostname() for task in tasks)
