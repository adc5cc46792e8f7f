"""Virtual clusters as changed at run time. Plain functions over a connection."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import Connection, delete, func, insert, literal_column, select, update

from paicluster.store.rows import VirtualClusterRow
from paicluster.store.tables import jobs, virtual_clusters


def list_clusters(conn: Connection) -> list[VirtualClusterRow]:
    query = select(virtual_clusters).order_by(virtual_clusters.c.name)
    return [VirtualClusterRow(*row) for row in conn.execute(query)]


def put_cluster(conn: Connection, row: VirtualClusterRow) -> None:
    """Insert or replace the row of a virtual cluster."""
    values = asdict(row)
    changed = conn.execute(
        update(virtual_clusters).where(virtual_clusters.c.name == row.name).values(values)
    ).rowcount
    if not changed:
        conn.execute(insert(virtual_clusters).values(values))


def set_status(conn: Connection, name: str, status: str) -> None:
    """Set whether a virtual cluster accepts jobs (`running`) or not (`stopped`)."""
    known = {row.name: row for row in list_clusters(conn)}
    old = known.get(name, VirtualClusterRow(name, None, None, None, None, None))
    put_cluster(conn, replace(old, status=status))


def delete_cluster(conn: Connection, name: str) -> bool:
    return conn.execute(delete(virtual_clusters).where(virtual_clusters.c.name == name)).rowcount > 0


def unfinished_jobs(conn: Connection, vc: str) -> int:
    """Number of unfinished jobs of a virtual cluster."""
    # The exact expression of the partial index, so that SQLite uses it.
    unfinished = jobs.c.sub_state != literal_column("'Completed'")
    query = select(func.count()).select_from(jobs).where(jobs.c.vc == vc, unfinished)
    return conn.execute(query).scalar() or 0
