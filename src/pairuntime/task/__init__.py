"""What tasks need Python for: bringing results to the storage, packages, ``hdfs dfs``."""
