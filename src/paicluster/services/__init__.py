"""Application services shared by API and controller: admission, virtual clusters, quotas, sources, files.

They import the store, authentication, the scheduler's types, the settings and `paicluster.files`; never the
API, the controller, an engine or anything of HTTP.
"""
