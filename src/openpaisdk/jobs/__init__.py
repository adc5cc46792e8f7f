"""Job operations of the SDK: build a job, upload its files, submit it, copy it, delete it, fetch its outputs.

Combines the layers below (storage, client, embedded, protocol, config); prints nothing. Import the module you
need: a command that lists jobs must not pay for importing the one that packs folders.
"""
