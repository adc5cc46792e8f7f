"""SSH endpoint: plain `ssh`, `scp`, `sftp` and `rsync` reach tasks that have no sshd in their image.

One listener for all jobs, with asyncssh, which only the modules `connection` and `channels` import: it is
optional. May import what the API may, and `engines.common`. See docs/contributing/exec-and-forward.md.
"""
