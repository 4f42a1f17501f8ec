"""Drivers whose substrate is memory, for tests: of this package and of its users.

The drivers of one host share a :class:`Substrate`; a process has one for each site and host
(:func:`substrate`). A test can make it slow, and inject a fault into the n-th call of a method::

    substrate(site, "localhost").fault("volume.create", at=2, kind="fail")

===============  =====================================================================
``fail``         It fails, and has no effect.
``unsupported``  It raises Unsupported, and has no effect.
``after``        It takes effect and fails.
``late``         It takes effect after its caller gave it up, and the event ``until``, if one is given.
``hang``         It never returns, and has no effect.
``lie``          It returns as if done, and has no effect.
===============  =====================================================================

A host can also hang as a whole, until ``mend()``::

    substrate(site, "w2").hang()

A server loses its devices, as by a hard reboot by Nova::

    substrate(site, "w2").lose_devices("sliver-1")
"""

from fabric_direct.drivers.fake.compute import FakeCompute
from fabric_direct.drivers.fake.device import FakeColdDevice, FakeDevice
from fabric_direct.drivers.fake.guest import FakeGuest
from fabric_direct.drivers.fake.host import FakeHost
from fabric_direct.drivers.fake.network import FakeNetwork
from fabric_direct.drivers.fake.service import FakeService
from fabric_direct.drivers.fake.substrate import Fault, Substrate, substrate
from fabric_direct.drivers.fake.tuning import FakeTuning
from fabric_direct.drivers.fake.uplink import FakeUplink
from fabric_direct.drivers.fake.volume import FakeVolume

__all__ = [
    "FakeColdDevice",
    "FakeCompute",
    "FakeDevice",
    "FakeGuest",
    "FakeHost",
    "FakeNetwork",
    "FakeService",
    "FakeTuning",
    "FakeUplink",
    "FakeVolume",
    "Fault",
    "Substrate",
    "substrate",
]
