"""A real nginx in front of a cluster, as an administrator sets it up."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.external_services import debian
from support.ports import free_port
from support.server_fixture import DEADLINE_S, eventually

# Connections with the server are kept open and shared by clients: so requests could get mixed up.
_CONFIG = """
daemon off; master_process off; error_log {folder}/error.log; pid {folder}/pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream cluster {{ server {server}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    client_max_body_size 0;
    location / {{
      proxy_pass http://cluster;
      proxy_http_version 1.1;
      proxy_request_buffering {request_buffering};
      proxy_buffering off;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
    }}
  }}
}}
"""


@contextlib.contextmanager
def nginx_before(
    server: tuple[str, int], folder: Path, *, buffers_requests: bool = False
) -> Iterator[tuple[str, int]]:
    """The address of an nginx that passes requests on to this server."""
    debian(["nginx-light"], commands=["nginx"])
    port = free_port()
    folder.mkdir(parents=True)
    config = folder / "nginx.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            server=f"{server[0]}:{server[1]}",
            port=port,
            request_buffering="on" if buffers_requests else "off",
        )
    )
    process = subprocess.Popen([shutil.which("nginx") or "nginx", "-p", str(folder), "-c", str(config)])
    try:
        eventually(lambda: process.poll() is not None or _listens(port), "nginx to listen")
        assert process.poll() is None, (folder / "error.log").read_text()
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False
