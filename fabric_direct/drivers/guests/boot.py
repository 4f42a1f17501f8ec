"""How far the boot of a guest is, as cloud-init says."""

import json
from enum import StrEnum

STATUS = "/var/run/cloud-init/status.json"
"""What cloud-init says of its stages; ``/var/run`` is where ``/run`` is, on BSD, too."""
ENABLED = "/var/run/cloud-init/enabled"
"""Made, as one of the first things of a boot, in a guest of systemd in which cloud-init runs."""
RESULT = "/var/run/cloud-init/result.json"
"""What cloud-init says when it has finished."""


class Boot(StrEnum):
    """How far the boot of a guest is."""

    SETTING_UP = "setting up"
    """cloud-init sets the guest up: its network, users, keys and disks."""
    LAST_STAGE = "last stage"
    """The guest is set up; cloud-init installs packages and runs the boot script."""
    FINISHED = "finished"
    """cloud-init, or its substitute, has finished, and so has the boot script."""
    UNFINISHED = "unfinished"
    """Nothing says that it has finished, nor how far it is: there may be no cloud-init."""
    UNKNOWN = "unknown"
    """Its driver cannot tell."""


def stage_of(status: bytes) -> Boot:
    """Return how far a boot is that has not finished, by the content of :data:`STATUS`.

    The boot script belongs to cloud-init's last stage, ``modules-final``, which begins when
    ``modules-config`` has finished.
    """
    try:
        finished = json.loads(status)["v1"]["modules-config"]["finished"]
    except (LookupError, RecursionError, TypeError, ValueError):  # guests may say anything
        return Boot.UNFINISHED
    return Boot.SETTING_UP if finished is None else Boot.LAST_STAGE


def errors_of(result: bytes) -> tuple[str, ...]:
    """Return what has failed in a boot, such as the boot script, by the content of :data:`RESULT`."""
    try:
        errors = json.loads(result)["v1"]["errors"]
    except (LookupError, RecursionError, TypeError, ValueError):  # guests may say anything
        return ()
    listed = errors if isinstance(errors, list) else []
    return tuple(str(error).encode(errors="replace").decode() for error in listed)
