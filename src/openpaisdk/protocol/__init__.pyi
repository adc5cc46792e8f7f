from paiprotocol.jobs import *  # noqa: F403
