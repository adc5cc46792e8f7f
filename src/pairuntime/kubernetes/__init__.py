"""Runtime of a pod: a second container beside the user's, which needs nothing but a POSIX shell.

Both see one volume, the exchange. `shim` is the first process of the user's container: it starts the command
on request. `pod_runtime`, in the second container, unpacks what the task needs, claims the attempt,
and supervises it through named pipes in the exchange (`pod_attempt`).
"""
