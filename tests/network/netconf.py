"""The lab's netconfd: what it says of documents that are for NSO."""

from collections import Counter
from xml.etree import ElementTree as ET

from ncclient import manager
from ncclient.operations.rpc import RPCError

from labs.network.nso_devices import Json
from labs.network.nso_standin import ROOT, model
from tests.network.conftest import STATE

_BASE, _NCS = "urn:ietf:params:xml:ns:netconf:base:1.0", "http://tail-f.com/ns/ncs"


def refusal(services: Json) -> str:
    """Have netconfd store services in place of all others; return why it refuses them, or nothing.

    Its target is `running`: with `candidate` a commit says ok, and nothing is stored.
    """
    config = ET.Element(f"{{{_BASE}}}config")
    config.extend(model().from_raw({ROOT: services}).to_xml())
    config[0].set(f"{{{_BASE}}}operation", "replace")
    document = ET.tostring(config, "unicode")
    with manager.connect_uds(path=f"{STATE}/netconf/session.sock", timeout=60) as session:
        try:
            session.edit_config(document, target="running")
        except RPCError as error:
            return f"{error.path}: {error.message}"
        stored = session.get_config("running", ("subtree", f"<services xmlns='{_NCS}'/>"))
    assert _content(stored.data_xml) == _content(document)
    return ""


def _content(document: str) -> Counter[tuple[str, str]]:
    """Return the elements of services with their texts, whatever the order of a list's entries."""
    (services,) = ET.fromstring(document)
    return Counter((each.tag, (each.text or "").strip()) for each in services.iter())
