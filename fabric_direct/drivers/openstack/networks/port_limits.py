"""Bandwidths of ports: a QoS policy for each port that has one, with a rule for each direction.

The policy carries the port's stamp. It is made when the port is there, complete before the port gets it,
and goes after the port. A policy of others that a port has is read like ours; it is taken from the port
where another bandwidth is asked for, and never changed or deleted. A network may have a policy of its
own: it holds for the ports that have none, and is not theirs.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from openstack.connection import Connection
from openstack.network.v2.port import Port as NeutronPort
from openstack.network.v2.qos_policy import QoSPolicy

from fabric_direct.drivers.openstack.client.errors import if_there, refused_as
from fabric_direct.drivers.openstack.client.session import uncached
from fabric_direct.drivers.openstack.client.stamp import component_of, description
from fabric_direct.drivers.openstack.networks.neutron import Neutron
from fabric_direct.drivers.openstack.networks.port_records import policies_of, port_name, ports_of
from fabric_direct.errors import NotFound, NotVerified

_LIMIT = "bandwidth_limit"
_DIRECTIONS = {"egress", "ingress"}
# kbit/s, Neutron's unit, for one Mbit/s.
_KBPS = 1000
# Neutron's agents then choose one, for TCP 80 % of the rate.
_BURST = 0
# By default managers and administrators may make policies; administrators alone in older releases.
_RIGHTS = (
    "leave out the bandwidth, use a manager's or an administrator's credentials, or let Neutron's "
    "policy.yaml allow create, update and delete of policy and policy_bandwidth_limit_rule"
)


def bandwidths(
    cloud: Connection, ports: Iterable[NeutronPort], **query: str | None
) -> dict[str, int | None]:
    """Return what each policy that a port has limits it to, by the policy's id.

    :param query: what lists the policies that are ours; others are read one by one.
    """
    ids = {port.qos_policy_id for port in ports if port.qos_policy_id}
    listed = cloud.network.qos_policies(**query) if ids else ()
    known: dict[str, QoSPolicy | None] = {policy.id: policy for policy in listed}
    known |= {name: if_there(cloud.network.get_qos_policy, name) for name in ids - known.keys()}
    return {name: _bandwidth(known[name]) for name in ids}


def _bandwidth(policy: QoSPolicy | None) -> int | None:
    """Return a policy's limit, as a :class:`PluggedPort` has it; one that is hidden counts as uneven."""
    if policy is None:
        return 0
    limits = {rule.get("direction"): rule.get("max_kbps") or 0 for rule in _limits(policy)}
    if not limits:
        return None
    (rate, *others), whole = set(limits.values()), limits.keys() == _DIRECTIONS
    return rate // _KBPS if whole and not others and rate % _KBPS == 0 else 0


def _limits(policy: QoSPolicy) -> list[dict[str, Any]]:
    return [rule for rule in policy.rules if rule["type"] == _LIMIT]


class PortLimits(Neutron):
    """The policies of the ports of one cloud.

    The methods also raise openstacksdk's errors: call them within :meth:`translated`.
    """

    def settle(self, holder: str, wanted: Mapping[str, int | None]) -> None:
        """Give each port the bandwidth that is wanted in each direction, or none.

        :param holder: the sliver that holds the ports.
        :param wanted: Mbit/s by component.
        :raises NotFound: if a port that shall be limited is not there.
        :raises Denied: if the user may not make policies.
        :raises NotVerified: if a policy that is not needed any more still exists.
        """
        held: dict[str, list[NeutronPort]] = {}
        for port in ports_of(self.connection(), self.site.site, holder):
            held.setdefault(component_of(port, holder), []).append(port)
        for component, mbps in wanted.items():
            with refused_as("this user may not limit a NIC", _RIGHTS):
                if mbps is None:
                    self._lift(holder, component, held.get(component, []))
                else:
                    self._limit(holder, component, held.get(component, []), mbps)

    def _lift(self, holder: str, component: str, ports: list[NeutronPort]) -> None:
        for port in (port for port in ports if port.qos_policy_id):
            ours = self._ours(holder, component)
            if port.qos_policy_id in {policy.id for policy in ours} or self._is_limited(port):
                self.api.update_port(port, qos_policy_id=None)
            for policy in ours:
                self.api.delete_qos_policy(policy)
            if ours and (left := self._ours(holder, component)):
                raise NotVerified("the policy is not gone", why=left[0].id)

    def _is_limited(self, port: NeutronPort) -> bool:
        (found,) = bandwidths(self.connection(), [port]).values()
        return found is not None

    def _limit(self, holder: str, component: str, ports: list[NeutronPort], mbps: int) -> None:
        if not ports:
            raise NotFound(f"port {component} of sliver {holder} is not there")
        policy = self._policy(holder, component)
        for direction in sorted(_DIRECTIONS):
            self._rule(policy, direction, mbps * _KBPS)
        for port in ports:
            if port.qos_policy_id != policy.id:
                self.api.update_port(port, qos_policy_id=policy.id)

    def _ours(self, holder: str, component: str) -> list[QoSPolicy]:
        """Return the policies of a port; what the list by description lacks is looked for by name."""
        name, stamp = port_name(holder, component), description(self.site.site, holder)
        with uncached():
            found = policies_of(self.connection(), self.site.site, holder)
            if ours := [policy for policy in found if policy.name == name]:
                return ours
            named = self.mine(self.api.qos_policies(name=name))
        return [policy for policy in named if policy.description == stamp]

    def _policy(self, holder: str, component: str) -> QoSPolicy:
        """Return the port's policy; make it if it is not there."""

        def find() -> QoSPolicy | None:
            return next(iter(self._ours(holder, component)), None)

        stamp = description(self.site.site, holder)
        asked = {"name": port_name(holder, component), "description": stamp}
        return find() or self.once(partial(self.api.create_qos_policy, **asked), find)

    def _rule(self, policy: QoSPolicy, direction: str, kbps: int) -> None:
        """Let the policy have this limit in a direction: Neutron allows one for each."""
        asked = {"max_kbps": kbps, "max_burst_kbps": _BURST}
        found = _rule_of(policy, direction)
        if found is None:
            self._post_rule(policy.id, direction, asked)
        elif found | asked != found:
            self.api.update_qos_bandwidth_limit_rule(found["id"], policy.id, **asked)

    def _post_rule(self, policy_id: str, direction: str, asked: dict[str, int]) -> None:
        def post() -> str:
            create = self.api.create_qos_bandwidth_limit_rule
            return create(policy_id, direction=direction, **asked).id

        def find() -> str | None:
            found = _rule_of(self.api.get_qos_policy(policy_id), direction)
            return found["id"] if found and found | asked == found else None

        self.once(post, find)


def _rule_of(policy: QoSPolicy, direction: str) -> dict[str, Any] | None:
    there = (rule for rule in _limits(policy) if rule.get("direction") == direction)
    return next(there, None)
