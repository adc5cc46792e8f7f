"""The file that `paicluster init` writes: every setting with its default, explained."""

from __future__ import annotations

from pathlib import Path

_TEMPLATE = """\
# A cluster of openpaisdk. Check it with: paicluster check-config {file}
# Start it with: paicluster serve --config {file}
# What is commented out shows the default. Options of `paicluster serve` win over this file.
# Paths are taken from the folder of this file.

# Where the cluster keeps everything: database, keys, logs, working folders.
home: .

listen:
  host: 127.0.0.1                       # 0.0.0.0 serves other machines, and then wants tls
  port: 9186                            # 0 takes a free one
  # external-url: https://pai.example.com   # what people and tasks type, if something stands in front
  # external-ca: ca.pem                   # the certificates it is known by, if tasks do not trust them anyway
  # tls:
  #   certificate: cert.pem               # the chain, PEM
  #   key: key.pem
  # allow-plain-http: false               # true: serve other machines without TLS
  # cors-origins: []                      # pages from here may use the API from a browser
  # trusted-proxies: []                   # addresses of proxies whose X-Forwarded-For is believed

# The database is one file, on a local disk.
# database: cluster.db

{engines}
# Shares of the cluster. `default` always has the rest. A share may name its engine.
virtual-clusters:{clusters}
#   lab: {{gpus: 2, cpus: 16, memory-mb: 64000}}

# Places for files.
# storages:
#   - {{name: home, type: own, path: storage, share: false}}      # the cluster's own
#   - {{name: data, type: mount, path: /data, read-only: true}}   # a path of this machine
#   - {{name: old, type: hdfs, url: "http://namenode:9870"}}      # somebody else's

authentication:
  anonymous-v1-reads: false             # true: old clients may list and see jobs without a token
  trust-user-name: false                # true: in the storage user.name=X alone makes one X, without a token
  session-lifetime: 7d                  # of a login; tokens of applications last until revoked
  failed-logins-per-account: 10         # a minute; null sets no limit
  failed-logins-per-address: 30

limits:
  body-mb: 8                            # of a request
  sources-mb: 4096                      # of an uploaded folder
  slow-client: 60s                      # then a connection on which nothing moves is closed
  requests-per-minute: 60000            # for each address; null sets no limit
  lists-per-minute: 6000                # for each user
  submissions-per-hour: 360000          # for each user

# How long finished jobs stay, with their logs and files; null sets no limit.
retention:
  days: 30
  jobs: 100000
  files-mb: null

# With more than one user, run the server as root: each job then runs as its user's own Unix account.
# accounts:                               # where the account is not called as the user is
#   alice: asmith
# allow-shared-account: false             # true: everybody's jobs run as one account and can read each other
"""

_OF_THIS_MACHINE = """\
  # cpus: null                            # cores to hand out; null: what the machine has
  # memory-mb: null
  # gpus: null
  grace: 10                             # seconds between asking a task to stop and killing it
  limits: enforce                       # hold tasks to what they asked for; or off
"""

PROCESS = f"""\
# Where tasks run: as processes of this machine. With `type: container`, each in the image its job names.
engine:
  type: process
{_OF_THIS_MACHINE}"""

CONTAINER = f"""\
# Where tasks run: on this machine, each in a container of the image that its job names, by podman or docker.
# Tasks without an image are processes. With `type: process` all are, and images are not used.
engine:
  type: container
  images: ignore                        # a job whose image cannot be run here runs without; refuse: it fails
{_OF_THIS_MACHINE}"""


def cluster_file(file: Path, engines: str = PROCESS, clusters: str = "") -> str:
    """The commented file of a new cluster: with where tasks run, and what virtual clusters there are."""
    return _TEMPLATE.format(file=file, engines=engines, clusters=clusters)
