set -o errexit -o nounset -o pipefail
sh -c 'echo begun; while [ ! -e /tmp/go ]; do sleep 0.2; done; echo ended; exit 3'
