"""Exec sessions: a command in a running task whose streams travel over one WebSocket.

`host` is the process at the task's end of the connection; `transport` has the frames and messages.
"""
