"""HTML pages without scripts, so that output of a job can never run as one."""
