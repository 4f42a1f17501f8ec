"""What a site answers about its images."""

import pytest

from fabric_direct.site.config import ImageSettings, Site


@pytest.mark.parametrize(
    ("image", "user"),
    [
        ("default_rocky_9", "rocky"),
        ("docker_ubuntu_22", "ubuntu"),
        ("default_centos8_stream", "centos"),
        ("default_debian_12", "debian"),
        ("default_fedora_40", "fedora"),
        ("rocky_on_fedora", "rocky"),
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
