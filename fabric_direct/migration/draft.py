"""The site as it is assembled: its fields, the lines that they come from, and what was left out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from fabric_direct.documents import parse
from fabric_direct.documents.tree import Path as Steps
from fabric_direct.documents.tree import dotted
from fabric_direct.errors import InvalidSite
from fabric_direct.migration import render
from fabric_direct.migration.arm import ResourceModel
from fabric_direct.migration.inventory import AnsibleInventory, InventoryHost
from fabric_direct.migration.values import FileLine, Value, as_text
from fabric_direct.site.config import Site

T = TypeVar("T")
Convert = Callable[[Any], T]


class NoticeKind(StrEnum):
    """The meaning of a finding for the operator."""

    TO_DO = "to do"
    NOT_TRANSLATED = "not translated"
    NOT_NEEDED = "not needed"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the operator should know of. It contains no value that may be a secret."""

    kind: NoticeKind
    place: FileLine | None
    """None if it is in no file."""
    what: str
    """The field or variable."""
    why: str
    remedy: str = ""
    """What the operator can do about it."""


@dataclass
class SiteDraft:
    """A site that is being assembled."""

    secure: Path
    """The ``secure.yaml`` that the cloud's password will be in."""
    name: str = ""
    """Of the site and of its cloud's entry."""
    site: dict[str, Any] = field(default_factory=dict)
    """Sections and fields of site.yaml."""
    auth: dict[str, str] = field(default_factory=dict)
    """How to log in to the cloud; never the password."""
    resources: ResourceModel | None = None
    """FABRIC's resource model of the site, if it was given."""
    border_routers: Value | None = None
    """As NetHandler's configuration names them."""
    interpreter: Value | None = None
    """The Python of the playbooks that ran on workers, as their handlers' configuration names it."""
    origins: dict[Steps, FileLine] = field(default_factory=dict)
    """Where the fields of the site come from."""
    findings: list[Notice] = field(default_factory=list)

    def put(self, path: Steps, content: Any, place: FileLine) -> None:
        """Set a field of the site; if it has another value already, report that and keep the first."""
        section = self._section(path[:-1])
        if section.setdefault(path[-1], content) == content:
            self.origins.setdefault(path, place)
            return
        why = f"differs from {self.origins[path]}, which was taken"
        self.skip(place, dotted(path), why, "decide which one is meant, and correct site.yaml")

    def converted(self, variable: str, value: Value, convert: Convert[T], remedy: str) -> T | None:
        """Return the content of a value; None, and reported, if it cannot be known."""
        if self.usable(variable, value, remedy):
            try:
                return convert(value.content)
            except ValueError as error:
                self.skip(value.place, variable, str(error), remedy)
        return None

    def read(
        self,
        variable: str,
        host: InventoryHost,
        convert: Convert[T],
        remedy: str,
        unset: str = "is not set",
    ) -> T | None:
        """Return the content of a host's variable; None, and reported, if it cannot be known."""
        value = host.variables.get(variable)
        if value is None:
            self.skip(host.place, variable, unset, remedy)
            return None
        return self.converted(variable, value, convert, remedy)

    def take(
        self, path: Steps, variable: str, value: Value | None, convert: Convert[Any] = as_text
    ) -> None:
        """Set a field of the site to a value, or report why it cannot be set."""
        remedy = f"set {dotted(path)} in site.yaml yourself"
        content = self.converted(variable, value, convert, remedy) if value else None
        if value and content is not None:
            self.put(path, content, value.place)

    def skip_others(
        self, names: list[str], inventory: AnsibleInventory, label: str, said: str
    ) -> None:
        """Report all but the first of some hosts: a site has one such thing."""
        found, *others = names
        for name in others:
            why = f"{said} was read from {found}"
            place = inventory.hosts[name].place
            self.skip(place, f"{label} {name}", why, "check whether they differ")

    def needs(self, *drivers: str) -> bool:
        """Return whether a resource type has one of these drivers, or the site names no drivers."""
        named = set(self.site.get("drivers", {}).values())
        return not named or not named.isdisjoint(drivers)

    def unused(self, names: Iterable[str], inventory: AnsibleInventory) -> None:
        """Report hosts that no resource type of the site needs."""
        for name in names:
            why = "no resource type of the given files needs it"
            self.not_needed(inventory.hosts[name].place, f"host {name}", why)

    def usable(self, variable: str, value: Value, remedy: str) -> bool:
        """Return whether a value can be known; if not, report why."""
        why = "has no value" if value.empty else value.hidden()
        if why:
            self.skip(value.place, variable, why, remedy)
        return not why

    def skip(self, place: FileLine | None, what: str, why: str, remedy: str) -> None:
        """Report what could not be translated."""
        self.findings.append(Notice(NoticeKind.NOT_TRANSLATED, place, what, why, remedy))

    def to_do(self, place: FileLine | None, what: str, why: str, remedy: str) -> None:
        """Report what is left for the operator to do."""
        self.findings.append(Notice(NoticeKind.TO_DO, place, what, why, remedy))

    def not_needed(self, place: FileLine, what: str, why: str) -> None:
        """Report what has no counterpart and needs none."""
        self.findings.append(Notice(NoticeKind.NOT_NEEDED, place, what, why))

    def drop(self, complaints: list[str]) -> bool:
        """Remove and report a field that a complaint is about, or the nearest one that encloses it.

        :param complaints: ``field: what is wrong``.
        :return: whether a field was removed.
        """
        for path in sorted(self.origins, key=lambda path: len(dotted(path)), reverse=True):
            begins = tuple(f"{dotted(path)}{sign}" for sign in (": ", ".", "["))
            complaint = next((line for line in complaints if line.startswith(begins)), None)
            if complaint:
                del self._section(path[:-1])[path[-1]]
                why = f"site.yaml would be refused: {complaint}"
                place = self.origins.pop(path)
                self.skip(place, dotted(path), why, "set it in site.yaml yourself")
                return True
        return False

    def told(self) -> tuple[Notice, ...]:
        """Return the findings, each once; those to do come first."""
        order = list(NoticeKind)
        once = dict.fromkeys(self.findings)
        return tuple(sorted(once, key=lambda finding: order.index(finding.kind)))

    def _section(self, path: Steps) -> dict[Any, Any]:
        section: dict[Any, Any] = self.site
        for step in path:
            section = section.setdefault(step, {})
        return section


def settle(draft: SiteDraft) -> str:
    """Return the text of site.yaml, which is valid; fields that are refused are removed and reported.

    :raises InvalidSite: if a field is refused that comes from no file.
    """
    while True:
        text = render.site(draft.name, draft.site)
        try:
            parse(text, "site.yaml", Site, InvalidSite)
        except InvalidSite as refusal:
            # Without `site.yaml:LINE: `, because this text is not written to a file.
            complaints = [line.partition(" ")[2] for line in str(refusal).splitlines()]
            if not draft.drop(complaints):
                raise
        else:
            return text
