"""P4 switches as slivers: a whole switch, installed anew for each, with a user's keys."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fabric_direct.model.base import Name, SshPublicKey, refuse_twice
from fabric_direct.model.vm import Sliver


class Switch(Sliver):
    """A whole switch, which nobody else has."""

    type: Literal["Switch"] = "Switch"
    name: Name
    switch: Name
    """The switch, as site.yaml names it below ``p4_switches``."""
    ssh_keys: Annotated[tuple[SshPublicKey, ...], Field(min_length=1, max_length=64)]
    """Who may log in, as the user that site.yaml names: public keys in OpenSSH's one-line format."""

    @model_validator(mode="after")
    def _each_once(self) -> "Switch":
        refuse_twice("ssh_keys:", list(self.ssh_keys))
        return self
