"""Runtime of a pod: a container of ours beside the user's, which needs nothing but a POSIX shell.

Both see one volume, the exchange. `shim` is the first process of the user's container: it starts the command
when it is told to. `pod_runtime`, in the container of ours, unpacks what the task needs, claims the attempt,
and supervises it through named pipes in the exchange (`pod_attempt`).
"""
