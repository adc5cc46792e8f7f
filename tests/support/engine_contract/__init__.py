"""What every engine must do, whatever runs its tasks.

An engine's test module makes a fixture ``rig`` (see `engine_rig.Rig`) and a class that inherits these
tests. Nothing here may know how an engine does it.
"""

from support.engine_contract.launch_contract import LaunchContract
from support.engine_contract.log_contract import LogContract
from support.engine_contract.session_contract import SessionContract
from support.engine_contract.stop_contract import StopContract
from support.engine_contract.usage_contract import UsageContract


class EngineContract(LaunchContract, StopContract, LogContract, SessionContract, UsageContract):
    """All of it."""
