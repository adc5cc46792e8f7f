"""Usage of processes, from the kernel's process table."""

import os

from pairuntime.supervisor.claim import read_file

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_stat(pid: "int") -> "tuple[int, int, float] | None":
    """Parent, start time in ticks since boot, and CPU time in seconds, with that of children it waited for.

    None: there is no such process. The time of a process that ends thus passes to its parent and stays in
    the sum over a tree.
    """
    try:
        data = read_file("/proc/%d/stat" % pid)
    except OSError:
        return None
    # The command name may hold spaces and parentheses: fields are counted after the last ')'.
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])) / _TICKS_PER_S


def _read_memory(pid: "int") -> "tuple[int, int]":
    """Bytes of resident memory that are its own, and those of files and segments it may share."""
    try:
        _, resident, shared = read_file("/proc/%d/statm" % pid).split()[:3]
    except (OSError, ValueError):
        return 0, 0
    return (int(resident) - int(shared)) * _PAGE_BYTES, int(shared) * _PAGE_BYTES


def _read_io(pid: "int") -> "tuple[int, int]":
    """Bytes read from storage and written to it, with those of children it waited for."""
    try:
        lines = read_file("/proc/%d/io" % pid).splitlines()
        return int(lines[4].split()[1]), int(lines[5].split()[1])
    except (OSError, ValueError, IndexError):  # of another account, or a kernel without these counters
        return 0, 0


def sum_usage(processes: "list[tuple[int, float]]") -> "tuple[float, int, int, int]":
    """CPU seconds, bytes of memory, bytes read and written of processes, given by pid and CPU time.

    Pages that one of them may share are counted once, as the most that one process has: nearly all are
    libraries and shared segments that the others have, too.
    """
    cpu_s, own, shared, read, written = 0.0, 0, 0, 0, 0
    for pid, process_cpu_s in processes:
        cpu_s += process_cpu_s
        process_own, process_shared = _read_memory(pid)
        own += process_own
        shared = max(shared, process_shared)
        process_read, process_written = _read_io(pid)
        read += process_read
        written += process_written
    return cpu_s, own + shared, read, written
