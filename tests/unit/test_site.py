"""What a site answers about its images, and what it takes for a worker's Python."""

import pytest
from pydantic import ValidationError

from fabric_direct.site.config import Host, ImageSettings, Site


@pytest.mark.parametrize(
    ("image", "user"),
    [
        ("default_rocky_9", "rocky"),
        ("docker_ubuntu_22", "ubuntu"),
        ("default_centos8_stream", "centos"),
        ("default_debian_12", "debian"),
        ("default_fedora_40", "fedora"),
        ("rocky_on_fedora", "rocky"),
        ("default_freebsd_14_zfs", "freebsd"),
        ("default_openbsd_7", "openbsd"),
        ("default_kali", "root"),
    ],
)
def test_who_logs_in_is_told_by_the_distribution_in_the_images_name(image: str, user: str) -> None:
    assert Site(site="TEST").image(image).user == user


def test_a_user_that_the_site_names_comes_first() -> None:
    site = Site(site="TEST", images={"default_centos9_stream": {"user": "cloud-user"}})
    assert site.image("default_centos9_stream").user == "cloud-user"


def test_an_image_with_a_path_alone_has_the_distributions_user() -> None:
    site = Site(site="TEST", images={"debian-12": {"path": "/images/debian-12.qcow2"}})
    assert site.image("debian-12") == ImageSettings(user="debian", path="/images/debian-12.qcow2")


@pytest.mark.parametrize(
    "python",
    [
        "python3",
        "python3.6",
        "/usr/bin/python3.6",
        "/usr/libexec/platform-python",
        "/opt/a b/python",
    ],
)
def test_a_python_is_named_by_path_or_by_name(python: str) -> None:
    assert Host(python=python).python == python


@pytest.mark.parametrize(
    "python",
    [
        "",
        "-c",
        "bin/python3",
        "./python3",
        "~/python3",
        "python3 -I",
        "a;b",
        "/a\nb",
        "/a\0b",
        "python3\n",
    ],
)
def test_what_is_neither_path_nor_name_is_refused_in_words(python: str) -> None:
    with pytest.raises(ValidationError, match="must be an absolute path, or a name"):
        Host(python=python)
