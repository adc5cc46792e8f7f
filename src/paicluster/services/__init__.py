"""Application services shared by API and controller: admission, virtual clusters, quotas, sources, metrics.

They import the store, authentication, the scheduler's types, the settings, `paicluster.files` and `logs`;
never the API, the controller, an engine or anything of HTTP.
"""
