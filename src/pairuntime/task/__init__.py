"""Commands for tasks that have Python: upload of outputs, sources, code, packages, ``hdfs dfs``."""
