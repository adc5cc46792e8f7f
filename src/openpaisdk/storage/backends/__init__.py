"""Storage backends, one module per protocol: ``local`` (paths, mounts), ``webhdfs`` (any HDFS), ``cluster``
(our own cluster: packs, multipart upload, file-descriptor passing). ``base`` defines the interface.

May import ``client``, ``config``, ``paiprotocol`` and ``storage.file_info``, never
``storage.transfer`` or ``storage.catalog``. Nothing is imported here: a listing must not load every backend.
"""
