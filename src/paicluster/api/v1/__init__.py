"""Version 1 of OpenPAI's API, for legacy clients.

Jobs are converted to version 2 on entry; inside the server there is one kind of job. Paths, messages and JSON
are OpenPAI's; the work is done by the functions of version 2.
"""
