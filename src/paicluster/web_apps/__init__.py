"""Web apps: TensorBoard, Jupyter and other web servers of tasks, each at a port of the server and thereby an
origin of its own. May import what `api` may, and `api`."""
