"""Check ``driver_settings`` of site.yaml by the models of the drivers that they are for."""

from pydantic import BaseModel

from fabric_direct.errors import InvalidSite
from fabric_direct.handlers import registry
from fabric_direct.site.config import Site


def check_driver_settings(site: Site) -> None:
    """Raise an error unless drivers of the site take all settings that it has for drivers.

    Drivers without settings are not imported; what they lack they say when they are made.

    :raises InvalidSite: with the path of a field that is invalid, or of settings that nobody takes; if a
        driver with settings cannot be loaded.
    """
    for name in site.driver_settings:
        for model in _models(site, name):
            site.settings_of(name, model)


def _models(site: Site, name: str) -> set[type[BaseModel]]:
    """Return the models of the settings of a driver; drivers of one name and several kinds share them.

    :raises InvalidSite: if it serves nothing at the site, or takes no settings.
    """
    used = sorted(registry.drivers_in_use(site))
    uses = [use for use in used if use.name == name]
    if not uses:
        raise InvalidSite(
            f"the site does not use a driver {name!r}",
            field=f"driver_settings.{name}",
            why=f"it uses {', '.join(sorted({use.name for use in used}))}",
            remedy="name it below drivers, or remove its settings",
        )
    factories = [registry.driver(*use) for use in uses]
    models = {model for each in factories if (model := getattr(each, "settings_model", None))}
    if not models:
        raise InvalidSite(
            f"the driver {name!r} takes no settings",
            field=f"driver_settings.{name}",
            remedy="remove them",
        )
    return models
