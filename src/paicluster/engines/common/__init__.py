"""Parts that all engines share: attempt folder, Unix accounts, runtime install, task files, image names.

Imports `engines.interface`, `paiprotocol` and `pairuntime`; never an engine.
"""
