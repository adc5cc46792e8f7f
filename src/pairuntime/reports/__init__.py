"""Reports over HTTP, for tasks on nodes that do not see the server's files: claim, logs, usage, exit record.

What every engine with `ReportsOverHttp` runs on its nodes; how a task gets there is the engine's own package.
"""
