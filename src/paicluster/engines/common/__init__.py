"""Parts that all engines share: attempt folder, Unix accounts, runtime install, task files, image names.

Imports `engines.interface`, `pairuntime` and the SDK's `fileio`; never an engine.
"""
