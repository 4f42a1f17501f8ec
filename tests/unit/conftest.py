"""What the unit tests share beside the slivers: a cloud that answers what a test says."""

from tests.unit.openstack_api import api, loopback

__all__ = ["api", "loopback"]
