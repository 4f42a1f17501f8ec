"""PCI addresses, and the states of devices."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, order=True, slots=True)
class PciAddress:
    """The address of a PCI function: domain, bus, slot, function, as in ``0000:25:00.0``."""

    domain: int
    bus: int
    slot: int
    function: int

    _FORM: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:([0-9a-fA-F]{1,4}|[1-9a-fA-F][0-9a-fA-F]{4,7}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])"
    )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``DDDD:BB:SS.F`` or ``BB:SS.F`` (hexadecimal; domain 0000 if absent).

        A domain may have fewer than four digits, or up to eight: :attr:`behind_controller`.

        :raises ValueError: if the text is not a PCI address.
        """
        match = cls._FORM.fullmatch(text)
        if not match:
            raise ValueError("must be a PCI address such as 0000:25:00.0")
        domain, bus, slot, function = match.groups(default="0000")
        return cls(int(domain, 16), int(bus, 16), int(slot, 16), int(function))

    @property
    def slot_address(self) -> "PciAddress":
        """Function 0 of its slot: the same for all functions of a device."""
        return replace(self, function=0)

    @property
    def behind_controller(self) -> bool:
        """Whether its domain is one beyond ffff, which a controller such as Intel VMD makes.

        Such a function is not passed through by itself: its interrupts are those of the controller
        (Linux, drivers/pci/controller/vmd.c).
        """
        return self.domain > 0xFFFF

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function}"

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.no_info_after_validator_function(
            cls.parse, core_schema.str_schema(pattern=f"^{cls._FORM.pattern}$")
        )
        return core_schema.json_or_python_schema(
            json_schema=text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), text]),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "examples": ["0000:25:00.0"]}


class DeviceState(StrEnum):
    """The availability of a PCI function for passthrough."""

    FREE = "free"
    USED = "used"
    """A domain, live or defined, has it."""
    HOST_USED = "host-used"
    """The host, or a program on it, uses it or another function of its IOMMU group."""
    UNCLEAN = "unclean"
    """Its last tenant is gone, and it has not been cleaned yet."""
    LOST = "lost"
    """The stamp of a server names it, and no domain has it: it is that sliver's, with its data."""
    QUARANTINED = "quarantined"
    """Cleaning failed; an operator must release it."""
    NOT_ALLOWED = "not allowed"
    """It is not in the site's allow-list."""
