"""The form that answers of a cloud must have: what the drivers take for granted of each resource.

openstacksdk takes the values of an answer as they are. So each resource that a service returns is
checked here, as it arrives. A form has the fields that the drivers read; others may be anything.
"""

from collections.abc import Callable
from functools import wraps
from ipaddress import ip_address, ip_network
from types import GeneratorType
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from openstack.baremetal.v1.allocation import Allocation
from openstack.baremetal.v1.node import Node
from openstack.baremetal.v1.port import Port as NodePort
from openstack.block_storage.v3.volume import Volume
from openstack.compute.v2.flavor import Flavor
from openstack.compute.v2.server import Server
from openstack.compute.v2.server_action import ServerAction
from openstack.compute.v2.service import Service
from openstack.compute.v2.volume_attachment import VolumeAttachment
from openstack.image.v2.image import Image
from openstack.network.v2.extension import Extension
from openstack.network.v2.floating_ip import FloatingIP
from openstack.network.v2.network import Network
from openstack.network.v2.port import Port
from openstack.network.v2.qos_policy import QoSPolicy
from openstack.network.v2.router import Router
from openstack.network.v2.security_group import SecurityGroup
from openstack.network.v2.subnet import Subnet
from openstack.placement.v1.resource_provider import ResourceProvider
from openstack.placement.v1.resource_provider_inventory import ResourceProviderInventory
from openstack.placement.v1.resource_provider_trait import ResourceProviderTrait
from openstack.resource import Body, Resource
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from fabric_direct.errors import DriverError

F = TypeVar("F", bound="Form")
# Characters of an id that a message shows: whatever is there instead of one may be long.
_SHOWN = 64


def _is(read: Callable[[str], object]) -> AfterValidator:
    """Return the check that a text can be read so."""

    def check(text: str) -> str:
        read(text)
        return text

    return AfterValidator(check)


Address = Annotated[str, _is(ip_address)]
Block = Annotated[str, _is(ip_network)]


class Hypervisor(Resource):
    """A hypervisor; openstacksdk's own warns of each field that later versions of the API lack."""

    resources_key, base_path, allow_list = "hypervisors", "/os-hypervisors/detail", True
    # The first in which it has the id that Placement knows it by. From 2.88 on Nova asks each worker for
    # its uptime before it answers.
    _max_microversion = "2.53"
    service = Body("service", type=dict)
    hypervisor_hostname = Body("hypervisor_hostname")
    state = Body("state")
    status = Body("status")
    cpu_info = Body("cpu_info", type=dict)


class ShownServer(Server):
    """A server, in the newest microversion in which Nova shows one whose cell does not answer."""

    _max_microversion = "2.97"


class Form(BaseModel):
    """Fields that must be of their types, as JSON has them; what openstacksdk does not know is None."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _of_resource(cls, found: Any) -> Any:
        if isinstance(found, Resource):
            return {name: getattr(found, name) for name in cls.model_fields}
        return found


class _Identified(Form):
    id: str


class _Named(_Identified):
    name: str | None


class _ServersFlavor(Form):
    name: str | None
    original_name: str | None
    vcpus: int
    ram: int
    disk: int


class _Fault(Form):
    message: str


class _Server(_Named):
    """Only the id is there when it was made just now, and in a list without details."""

    status: str | None
    task_state: str | None
    power_state: int | None
    metadata: dict[str, str] | None
    tags: list[str] | None
    flavor: _ServersFlavor | None
    compute_host: str | None
    instance_name: str | None
    attached_volumes: list[_Identified] | None
    fault: _Fault | None


class ListedServer(_Identified):
    """A server in a list without details; one whose cell does not answer has a status and no name."""

    name: str | None = None
    status: str | None = None


class _Link(Form):
    rel: str
    href: str


class ServerNames(Form):
    """A page of a list of servers without details."""

    servers: list[ListedServer]
    servers_links: list[_Link] = []

    def following(self) -> str:
        """Return the path of the next page, empty if this is the last."""
        links = (urlsplit(link.href) for link in self.servers_links if link.rel == "next")
        return next((f"/servers?{link.query}" for link in links), "")


class _Event(Form):
    event: str | None
    result: str | None
    details: str | None
    traceback: str | None


class _Action(Form):
    action: str | None
    request_id: str
    message: str | None
    events: list[_Event] | None


class _PluggedVolume(Form):
    volume_id: str
    device: str | None
    tag: str | None


class _Flavor(_Identified):
    name: str
    vcpus: int
    ram: int
    disk: int
    is_disabled: bool | None
    extra_specs: dict[str, Any] | None


class _Service(Form):
    host: str
    status: str | None
    state: str | None
    disabled_reason: str | None


class _Worker(Form):
    host: str
    disabled_reason: str | None = None


class _Processor(Form):
    arch: str | None = None


class _Hypervisor(_Identified):
    service: _Worker
    hypervisor_hostname: str | None
    state: str | None
    status: str | None
    cpu_info: _Processor | None


class _Inventory(Form):
    resource_class: str
    total: int
    reserved: int
    allocation_ratio: float | None


class _Usages(Form):
    usages: dict[str, int]


class _Traits(Form):
    traits: list[str]


class _Properties(Form):
    hw_architecture: str | None = None


class _Image(_Named):
    status: str | None
    architecture: str | None
    min_ram: int | None
    min_disk: int | None
    virtual_size: int | None
    properties: _Properties | None


class _FixedIp(Form):
    subnet_id: str
    ip_address: Address


class _Described(_Named):
    description: str | None


class _Port(_Described):
    network_id: str
    mac_address: str
    fixed_ips: list[_FixedIp]
    device_id: str | None
    device_owner: str | None
    status: str | None
    is_port_security_enabled: bool | None
    qos_policy_id: str | None


class _Extension(Form):
    alias: str


class _Rule(Form):
    """A rule of a policy: only one that limits a bandwidth has a rate."""

    id: str
    type: str
    direction: str | None = None
    max_kbps: int | None = None
    max_burst_kbps: int | None = None


class _Policy(_Described):
    rules: list[_Rule]


class _FloatingIp(_Identified):
    floating_ip_address: Address
    floating_network_id: str | None
    port_id: str | None


class _Network(_Described):
    name: str
    is_port_security_enabled: bool | None
    provider_network_type: str | None
    provider_physical_network: str | None
    provider_segmentation_id: int | None


class _Pool(Form):
    start: Address
    end: Address


class _Subnet(_Identified):
    cidr: Block
    ip_version: int
    gateway_ip: Address | None
    dns_nameservers: list[str]
    allocation_pools: list[_Pool] | None
    is_dhcp_enabled: bool | None
    ipv6_ra_mode: str | None
    ipv6_address_mode: str | None


class _Attachment(Form):
    server_id: str | None
    device: str | None


class ConsoleOutput(Form):
    """The console output of a server."""

    output: str | None


class _Message(Form):
    user_message: str


class Messages(Form):
    """The messages of Cinder to users about what failed."""

    messages: list[_Message]


class _Volume(_Named):
    status: str | None
    size: int | None
    metadata: dict[str, str]
    attachments: list[_Attachment] | None
    is_multiattach: bool | None


class _Node(_Named):
    """A bare-metal node. Its operator writes ``properties`` and ``extra`` as he likes."""

    provision_state: str
    power_state: str | None
    resource_class: str | None
    traits: list[str] | None
    properties: dict[str, Any] | None
    extra: dict[str, Any] | None
    instance_id: str | None
    allocation_id: str | None
    is_maintenance: bool | None
    maintenance_reason: str | None
    is_retired: bool | None
    last_error: str | None
    is_automated_clean_enabled: bool | None
    target_power_state: str | None
    reservation: str | None
    retired_reason: str | None


class _Allocation(_Named):
    state: str | None
    node_id: str | None
    last_error: str | None
    extra: dict[str, Any] | None


class _NodePort(_Identified):
    address: str
    node_id: str
    physical_network: str | None


_FORMS: dict[type[Resource], type[Form]] = {
    Allocation: _Allocation,
    Extension: _Extension,
    FloatingIP: _FloatingIp,
    Flavor: _Flavor,
    Hypervisor: _Hypervisor,
    Image: _Image,
    Network: _Network,
    Node: _Node,
    NodePort: _NodePort,
    Port: _Port,
    QoSPolicy: _Policy,
    ResourceProvider: _Usages,
    ResourceProviderInventory: _Inventory,
    ResourceProviderTrait: _Traits,
    Router: _Named,
    SecurityGroup: _Named,
    Server: _Server,
    ShownServer: _Server,
    ServerAction: _Action,
    Service: _Service,
    Subnet: _Subnet,
    Volume: _Volume,
    VolumeAttachment: _PluggedVolume,
}


class Checked:
    """A service of openstacksdk: whatever it returns has the form that the drivers rely on.

    A resource that has not is a :class:`~fabric_direct.errors.DriverError`, which names its field.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        return _checking(found) if callable(found) else found


def _checking(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def checked_call(*args: Any, **how: Any) -> Any:
        found = call(*args, **how)
        if isinstance(found, GeneratorType):
            return map(_checked, found)
        return _checked(found)

    return checked_call


def _checked(found: Any) -> Any:
    form = _FORMS.get(type(found))
    if form:
        read(form, found, _name(found))
    return found


def invalid(found: Resource, field: str, why: str) -> DriverError:
    """Return the error of a resource whose field does not suit where it is needed."""
    return _invalid(_name(found), field, why)


def _name(found: Resource) -> str:
    return f"{type(found).__name__} {str(found.id)[:_SHOWN]}"


def read(form: type[F], found: object, what: str) -> F:
    """Return what the cloud answered, in this form.

    :param found: a resource, or a value of JSON.
    :param what: what it is, for the message: ``Server b10bbd3a``.
    :raises DriverError: if it has another form; the reason names the first field.
    """
    try:
        return form.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise _invalid(what, field, first["msg"]) from error


def _invalid(what: str, field: str, why: str) -> DriverError:
    return DriverError(f"the cloud's answer is invalid: {what}", why=f"{field}: {why}")
