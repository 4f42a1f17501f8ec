"""The connection to the cloud of bare metal, whose errors name what of site.yaml says it."""

from openstack.connection import Connection

from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import InvalidSite
from fabric_direct.site.config import OpenStackSettings, Site


def connection(site: Site, settings: OpenStackSettings) -> Connection:
    """Return this process's connection to the cloud.

    :raises InvalidSite: if clouds.yaml has no such cloud or cannot be read.
    """
    try:
        return cloud(settings, call_limit=site.limits.call)
    except InvalidSite as error:
        section, _, key = error.field.partition(".")
        shared = site.openstack is not None and getattr(site.ironic, key, None) is None
        if section == "openstack" and not shared:
            error.field = f"ironic.{key}"
        raise
