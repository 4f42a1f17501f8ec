"""The entry of a cloud in clouds.yaml, checked before anything is sent.

openstacksdk takes the types of its values for granted, and requests looks at files of certificates and
keys at the first request: what is wrong there would end in an error of Python. The rules follow what
openstacksdk 4 does with a value; a key that neither it nor its usual logins have is left alone.
"""

import errno
import os
import re
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric_direct.documents.reasons import shown
from fabric_direct.errors import InvalidSite

SECTIONS = ("clouds", "cache", "client", "metrics")
"""The keys of clouds.yaml."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables that name CA certificates to requests where clouds.yaml names none."""
_MOST_BYTES = 16 * 2**20
_BEGIN = "-----BEGIN "
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""The name of a certificate in a directory of them, as ``openssl rehash`` makes it."""


def refuse_sections(document: Any, file: str) -> None:
    """Raise InvalidSite, which names the key, for a section of clouds.yaml that is not a mapping."""
    if isinstance(document, dict):
        for key in SECTIONS:
            if key in document and not isinstance(document[key], dict):
                raise _wrong(key, file, "a mapping of fields", document[key])


def refuse_values(entry: Any, field: str, file: str) -> None:
    """Raise InvalidSite, which names the key, for a value that openstacksdk does not expect.

    :param field: the entry's path in its file: ``clouds.NAME``.
    :param file: for the message.
    """
    if not isinstance(entry, dict):
        raise _wrong(field, file, "a mapping of fields", entry)
    for path, value in _pairs(entry, field, file):
        name = path.rpartition(".")[2].replace("-", "_")
        for names, right, what in _EXPECTED:
            if re.fullmatch(names, name) and not right(value):
                raise _wrong(path, file, what, value, secret=path.startswith(f"{field}.auth"))


def _pairs(values: dict[Any, Any], field: str, file: str) -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of an entry and of its credentials."""
    for key, value in values.items():
        if not isinstance(key, str):
            what = f"the key {key!r} must be text (put it in quotes)"
            raise InvalidSite(what, field=field, where=file)
        yield f"{field}.{key}", value
        if key == "auth" and isinstance(value, dict):
            yield from _pairs(value, f"{field}.auth", file)


def _wrong(field: str, file: str, what: str, value: Any, *, secret: bool = False) -> InvalidSite:
    """Return the error of a value.

    :param secret: whether a text may be one, which is not repeated.
    """
    given = "other text" if secret and isinstance(value, str) and value else shown(value)
    return InvalidSite(f"must be {what}, is {given}", field=field, where=file)


def _is_text(value: Any) -> bool:
    """Return whether openstacksdk makes the intended text of a value."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_text(value) and re.fullmatch(r"\d+(\.\d+)?", str(value)) is not None


def _is_count(value: Any) -> bool:
    return _is_text(value) and str(value).isdecimal()


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and re.match(r"https?://[^/]", value) is not None


def _is_interface(value: Any) -> bool:
    known = isinstance(value, str) and re.fullmatch("((public|internal|admin)(URL)?)?", value)
    return bool(known) or _is_list(_is_interface)(value)


def _is_region(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, dict) and _is_text(value.get("name")))


def _is_list(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(right, value))


def _or_absent(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or right(value)


_IDENTITY = (
    "(auth_token|token|passcode|system_scope|user_?name|user_id"
    "|((user|project|default)_)?domain_(id|name)|(project|tenant)_(id|name)"
    "|application_credential_(id|name|secret))"
)
_EXPECTED: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("auth", lambda v: isinstance(v, dict), "a mapping of fields"),
    ("auth_url", _is_address, "an address, http://… or https://…"),
    (_IDENTITY, _is_text, "text"),
    ("password", _or_absent(_is_text), "text"),
    ("auth_type|auth_plugin", lambda v: isinstance(v, str) and v != "", "text"),
    ("region_name", lambda v: _is_text(v) or _is_list(_is_text)(v), "text"),
    ("regions", _is_list(_is_region), "a list of names"),
    ("networks", _is_list(lambda v: isinstance(v, dict)), "a list of mappings"),
    (r"\w+_region_name", _or_absent(_is_text), "text"),
    (r"(\w+_)?interface|endpoint_type", _or_absent(_is_interface), "public, internal or admin"),
    (r"(\w+_)?(api_version|default_microversion)", _or_absent(_is_text), "a version"),
    (r"\w+_(service_type|service_name)", _or_absent(_is_text), "text"),
    (
        r"\w+_endpoint_override",
        lambda v: not v or _is_address(v),
        "an address, http://… or https://…",
    ),
    (r"(\w+_)?timeout", _or_absent(_is_number), "a number of seconds"),
    (r"(\w+_)?retry_delay", _or_absent(_is_number), "a number of seconds"),
    (r"(\w+_)?retries", _or_absent(_is_count), "a whole number"),
    ("verify", _or_absent(lambda v: isinstance(v, bool)), "true or false"),
    ("insecure", _or_absent(lambda v: isinstance(v, bool | str)), "true or false"),
    ("cacert|cert|key", _or_absent(lambda v: isinstance(v, str)), "the path of a file"),
    ("profile|cloud", _or_absent(lambda v: isinstance(v, str)), "the name of a profile"),
)
"""Keys, what a value of theirs must be, and that in words."""


# --- files


@dataclass(frozen=True, slots=True)
class _Named:
    """A path, and what names it."""

    path: Path
    field: str
    where: str

    def error(self, what: str, why: str = "", remedy: str = "") -> InvalidSite:
        return InvalidSite(what, field=self.field, where=self.where, why=why, remedy=remedy)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of reading it into ours; what is not a path is not repeated."""
        inline = self.error(
            "must be the path of a file, and is not one",
            remedy="write the certificate or key to a file, and name that",
        )
        if _BEGIN in str(self.path):
            raise inline
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise inline from None
            raise self.error(f"cannot read {self.path}", error.strerror or "") from error
        except ValueError:
            raise inline from None

    def is_directory(self) -> bool:
        with self.reading():
            return stat.S_ISDIR(self.path.stat().st_mode)

    def content(self) -> str:
        """Return the file's content; PEM is ASCII."""
        with self.reading():
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise self.error(f"{self.path} is not a file")
            with self.path.open("rb") as file:
                return file.read(_MOST_BYTES).decode("ascii", "replace")


def refuse_files(config: Mapping[str, Any], field: str, file: str) -> None:
    """Raise InvalidSite, which names the key, for certificates or keys that cannot be used.

    :param config: the entry as openstacksdk has it.
    :param field: the entry's path in its file.
    :param file: for the message.
    """

    def named(key: str) -> _Named | None:
        path = config.get(key)
        return _Named(_expanded(path), f"{field}.{key}", file) if path else None

    trusted, cert, key = named("cacert"), named("cert"), named("key")
    if config.get("verify", True) is not False and not config.get("insecure"):
        _refuse_trusted(trusted or _of_environment())
    if key:
        key.content()
    if cert:
        _refuse_pair(cert, key)


def _expanded(path: str) -> Path:
    """Return a path as openstacksdk has it: ``~`` of somebody unknown stays."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _of_environment() -> _Named | None:
    found = (name for name in _BUNDLES if os.environ.get(name))
    return next((_Named(Path(os.environ[name]), name, "the environment") for name in found), None)


def _refuse_trusted(named: _Named | None) -> None:
    """Refuse CA certificates: a file, or a directory as ``openssl rehash`` makes it."""
    if named is None:
        return
    if named.is_directory():
        with named.reading():
            if not any(_HASHED.fullmatch(each.name) for each in named.path.iterdir()):
                raise named.error(
                    f"{named.path} is a directory without certificates",
                    remedy="name a file, or let openssl rehash prepare the directory",
                )
        return
    named.content()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(named.path)
    except ssl.SSLError as error:
        raise named.error(f"{named.path} has no valid certificate in PEM form") from error


def _refuse_pair(cert: _Named, key: _Named | None) -> None:
    """Refuse a certificate without its key; a file of certificates may have the key, too."""
    certificate, private = cert.content(), (key or cert).content()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a password OpenSSL would ask at the terminal.
        context.load_cert_chain(cert.path, key.path if key else None, password="")
    except ssl.SSLError as error:
        keeper = key or cert
        if "CERTIFICATE-----" not in certificate:
            raise cert.error(f"{cert.path} has no certificate in PEM form") from error
        if "PRIVATE KEY-----" not in private:
            remedy = "" if key else "name it by key"
            what = f"{keeper.path} has no private key in PEM form"
            raise keeper.error(what, remedy=remedy) from error
        if "ENCRYPTED" in private:
            raise keeper.error(f"the key in {keeper.path} has a password") from error
        why = (error.reason or "").replace("_", " ").lower()
        raise keeper.error(f"{keeper.path} cannot be used", why) from error
