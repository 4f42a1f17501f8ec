"""Report the audit that goes on removing servers and domains after fabric_am is replaced."""

from fabric_direct.migration.draft import SiteDraft
from fabric_direct.migration.values import Fields, FileLine

WHAT = "audit of fabric_cf"
_WHY = (
    "each hour the crontab of the actor's container runs audit.py, which by fabric_am's playbooks"
    " deletes servers in whose names is an id of no active reservation, and on each worker every domain"
    " that OpenStack does not list"
)
_REMEDY = (
    "leave vm_handler_config.yml out of the container, or audit.py out of its /etc/crontab, before the"
    " actor starts anew; fabric-direct sweep finds what is left over"
)
_NEEDS = ("VM", "location", "inventory_location")


def translate(document: Fields, draft: SiteDraft) -> None:
    """Report the audit if a handler's configuration has what it removes servers by."""
    given = document.get("playbooks").values()
    if all(name in given for name in _NEEDS):
        tell(given["VM"].place, draft)


def tell(place: FileLine, draft: SiteDraft) -> None:
    """Report the audit, once."""
    if all(finding.what != WHAT for finding in draft.findings):
        draft.to_do(place, WHAT, _WHY, _REMEDY)
