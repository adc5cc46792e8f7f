"""A server that counts its own work for `support.work_budget`: function calls, SQL statements, commits."""

from __future__ import annotations

import gc
import json
import os
import socket
import sqlite3
import sys
import threading
from types import FrameType

from sqlalchemy import event
from sqlalchemy.pool import Pool

_counts = {"calls": 0, "statements": 0, "commits": 0}


def _count_call(frame: FrameType, kind: str, argument: object) -> None:
    if kind in ("call", "c_call"):
        _counts["calls"] += 1


def _count_statement(statement: str) -> None:
    word = statement.lstrip()[:6].upper()
    if word == "COMMIT":
        _counts["commits"] += 1
    elif word != "BEGIN":
        _counts["statements"] += 1


def _trace(connection: sqlite3.Connection, record: object) -> None:
    connection.set_trace_callback(_count_statement)


def _report(listener: socket.socket) -> None:
    sys.setprofile(None)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(_counts).encode())


def main() -> None:
    event.listen(Pool, "connect", _trace)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ["WORK_COUNTS"])
    listener.listen()
    threading.Thread(target=_report, args=(listener,), daemon=True).start()
    # A collection would be counted with the finalizers that it calls.
    gc.disable()
    threading.setprofile(_count_call)
    sys.setprofile(_count_call)
    from paicluster.cli import main as paicluster

    sys.exit(paicluster())


if __name__ == "__main__":
    main()
