"""Connections to several hosts."""

import threading
from contextlib import suppress
from unittest.mock import Mock
from xml.etree import ElementTree

import libvirt
import pytest
from pytest_mock import MockerFixture

from fabric_direct.calls.deadline import Deadline, bounded
from fabric_direct.drivers.libvirt.connection import connections as module
from fabric_direct.errors import DriverError, Unreachable


def test_a_host_that_does_not_answer_holds_up_nobody_who_wants_another(
    mocker: MockerFixture,
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def open_(uri: str) -> Mock:
        if uri == "test:dead":
            asked.set()
            answers.wait(60)
        return Mock(name=uri)

    mocker.patch.object(libvirt, "open", open_)
    mocker.patch.object(module, "_events")
    mocker.patch.dict(module._connections, clear=True)
    waiting = threading.Thread(target=module.connect, args=("test:dead",))
    waiting.start()
    asked.wait(60)
    other = threading.Thread(target=module.connect, args=("test:alive",))
    other.start()
    other.join(60)

    assert "test:alive" in module._connections
    answers.set()
    waiting.join()


def test_one_connection_is_opened_for_all_that_want_it_at_once(mocker: MockerFixture) -> None:
    opened = mocker.patch.object(libvirt, "open")
    mocker.patch.object(module, "_events")
    mocker.patch.dict(module._connections, clear=True)
    threads = [threading.Thread(target=module.connect, args=("test:one",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    opened.assert_called_once_with("test:one")


@pytest.mark.parametrize("text", ["", "<domain>", "<a b='&#0;'/>", "<a id='x'/>"])
def test_xml_that_cannot_be_read_is_an_error_of_ours(text: str) -> None:
    with (
        pytest.raises(DriverError, match="cannot look: libvirt's answer is invalid"),
        module.translated("look", ""),
    ):
        int(ElementTree.fromstring(text).attrib["id"])


def broken(code: int, domain: int) -> libvirt.libvirtError:
    error = libvirt.libvirtError("broken")
    error.err = (code, domain, "client socket is closed", 2, "", None, None, 0, 0)
    return error


class TestABrokenConnection:
    """What the daemon was asked for may still take effect there."""

    def left(self, error: libvirt.libvirtError) -> list[str]:
        class Driver:
            def start(self) -> None:
                with module.translated("start the domain", "qemu+ssh://w1/system"):
                    raise error

        deadline = Deadline.within(60)
        with suppress(DriverError):
            bounded(Driver(), "compute", deadline, 30).start()
        return [call.what for call in deadline.late()]

    @pytest.mark.parametrize("code", [libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_SYSTEM_ERROR])
    def test_leaves_a_request_without_an_answer(self, code: int) -> None:
        told = "the request to start the domain (qemu+ssh://w1/system)"

        assert self.left(broken(code, libvirt.VIR_FROM_RPC)) == [told]

    def test_an_error_of_the_daemon_is_an_answer(self) -> None:
        assert self.left(broken(libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_QEMU)) == []

    def test_what_could_not_be_sent_has_no_effect(self, mocker: MockerFixture) -> None:
        error = broken(libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_FROM_RPC)
        mocker.patch.object(libvirt, "open", side_effect=error)
        mocker.patch.object(module, "_events")
        mocker.patch.dict(module._connections, clear=True)

        class Driver:
            def start(self) -> None:
                with module.translated("start the domain", "test:none"):
                    module.connect("test:none")

        deadline = Deadline.within(60)
        with pytest.raises(Unreachable):
            bounded(Driver(), "compute", deadline, 30).start()

        assert deadline.late() == ()
