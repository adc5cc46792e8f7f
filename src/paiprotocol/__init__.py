"""The ground floor: what the SDK, the cluster and their users agree on. Imports nothing else of this project.

Pure but for files that the caller opened; PyYAML and xxhash are imported where they are used.
"""
