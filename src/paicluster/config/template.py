"""Template of cluster.yaml for `paicluster init`: every setting with its default and a comment."""

from __future__ import annotations

from pathlib import Path

from paicluster.engines.process.kind import PROCESS_SECTION

_TEMPLATE = """\
# A cluster of openpaisdk. Check it with: paicluster check-config {file}
# Start it with: paicluster serve --config {file}
# Commented-out settings show the default. Options of `paicluster serve` override this file.
# Paths are relative to the folder of this file.

# The cluster's home: database, keys, logs, working folders.
home: .

listen:
  host: 127.0.0.1                       # 0.0.0.0 serves other machines and requires tls
  port: 9186                            # 0 selects a free one
  # ssh-port: 0                           # of the SSH endpoint; 0 selects a free one and keeps it, null: none
  # app-ports: 9400-9499                  # of apps of jobs, as TensorBoard; by default any free, null: none
  # external-url: https://pai.example.com   # address for users and tasks, e.g. of a reverse proxy
  # external-ca: ca.pem                   # its CA certificates, if tasks do not trust them already
  # tls:
  #   certificate: cert.pem               # the chain, PEM
  #   key: key.pem
  # allow-plain-http: false               # true: serve other machines without TLS
  # cors-origins: []                      # origins whose pages may use the API
  # trusted-proxies: []                   # proxies whose X-Forwarded-* headers are trusted

# The database is one file, on a local disk; or one of PostgreSQL (pip install 'openpaisdk[postgresql]'),
# such as postgresql://pai@db.example.com/pai?sslmode=verify-full, with database-password-file beside it.
# database: cluster.db

{engines}
# Virtual clusters and their quotas. `default` always has the rest. Each may name its engine.
virtual-clusters:{clusters}
#   lab: {{gpus: 2, cpus: 16, memory-mb: 64000}}

# Storages.
# storages:
#   - {{name: home, type: own, path: storage, share: false}}      # the cluster's own
#   - {{name: data, type: mount, path: /data, read-only: true}}   # a path on this machine
#   - {{name: old, type: hdfs, url: "http://namenode:9870"}}      # an external HDFS
#   - {{name: sets, type: s3, bucket: team-data, credentials: s3.yaml, groups: [vision]}}

authentication:
  # The next three are for old clients.
  anonymous-v1-reads: false             # true: jobs may be read without a token, through version 1
  trust-user-name: false                # true: the storage trusts user.name without a token
  open-root: false                      # true: every user may create folders at the root of the storage
  session-lifetime: 7d                  # of a login; application tokens last until revoked
  failed-logins-per-account: 10         # per minute, from one address; null: no limit
  failed-logins-per-address: 30

limits:
  body-mb: 8                            # of a request
  bodies-mb: 128                        # of all requests in memory at one time; of one user half of it
  sources-mb: 4096                      # of an uploaded folder
  slow-client: 60s                      # a connection without progress is closed after this time
  connections-per-address: 256          # of clients that are not signed in; null: no limit
  connections-per-token: 2048           # of one token, also over loopback and proxies; null: no limit
  requests-per-minute: 60000            # per token, without one per address; null: no limit
  lists-per-minute: 6000                # per user
  submissions-per-hour: 360000          # per user
  submission-depth: 3                   # jobs that jobs submit: so deep; 0: none, null: no limit
  submissions-per-job: 1000             # jobs that one job submits
  parse-seconds-per-minute: 20          # per user: processor time for jobs that are large or invalid

# Retention of finished jobs with their logs and files; null: no limit.
retention:
  days: 30
  jobs: 100000
  files-mb: null

# Automatic backups of the database; the older, the fewer. `paicluster restore-store` returns to one.
backups:
  every: 1h                             # null: none
  keep: 30d
  # folder: /mnt/other-disk/paicluster    # default: database-backups in the home

# Samples of what tasks, nodes and virtual clusters use, for `pai top` and the portal; the older, the fewer.
usage:
  every: 5s                             # null: none
  keep-mb: 256

# With more than one user, run the server as root: each job then runs under its user's Unix account.
# accounts:                               # where account and user names differ
#   alice: asmith
# allow-shared-account: false             # true: all jobs run under one account and can read each other
"""


def cluster_file(file: Path, engines: str = PROCESS_SECTION, clusters: str = "") -> str:
    """The commented file of a new cluster, with sections for engines and virtual clusters."""
    return _TEMPLATE.format(file=file, engines=engines, clusters=clusters)
