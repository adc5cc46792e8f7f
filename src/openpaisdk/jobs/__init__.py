"""Jobs from where the user sits: find the cluster, build the job, send its files, hand it in, follow it.

Joins the rooms below it (config, local, client); prints nothing. Import the module you need: a command that
lists jobs must not pay for the one that packs folders.
"""
