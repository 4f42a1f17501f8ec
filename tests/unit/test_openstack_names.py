"""Names of the cloud's things: looked up once, and again when what they stood for is gone."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fabric_direct.calls.read_cache import ReadCache
from fabric_direct.drivers.openstack.client import session
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.name_cache import Names, names
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import Denied, DriverError, InvalidSliver, NotFound
from tests.unit.openstack_api import PROJECT, OpenStackApi, neutron_port

OTHERS = "0" * 32
ID = "6b1e1f0c-5a0f-4a3e-9d1b-0d1c2b3a4f5e"
UBUNTU = {"id": "i1", "name": "ubuntu", "status": "active", "visibility": "public"}
RED = {"id": "n1", "name": "red", "status": "ACTIVE", "project_id": PROJECT, "shared": False}


@pytest.fixture
def known(api: OpenStackApi) -> Names:
    return names(cloud(api.settings))


def images(*found: dict[str, Any]) -> dict[str, Any]:
    return {"images": list(found)}


def networks(*found: dict[str, Any]) -> dict[str, Any]:
    return {"networks": list(found)}


class TestALookup:
    def test_of_an_image_is_made_once(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "image", "/images", images(UBUNTU))

        assert known.image("ubuntu").id == known.image("ubuntu").id == "i1"
        assert api.calls == [("GET", "image", "/images", {"name": "ubuntu"})]

    def test_of_a_network_is_made_once(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "network", "/networks", networks(RED))

        assert known.network("red").id == known.network("red").id == "n1"
        assert api.calls == [("GET", "network", "/networks", {"name": "red"})]

    def test_of_a_security_group_is_made_among_the_projects_own(
        self, api: OpenStackApi, known: Names
    ) -> None:
        api.answer("GET", "network", "/security-groups", {"security_groups": [{"id": "g"}]})

        assert known.security_group("default").id == "g"
        assert api.calls == [
            ("GET", "network", "/security-groups", {"name": "default", "project_id": PROJECT})
        ]

    def test_of_flavors_and_hosts_is_made_once(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "compute", "/flavors/detail", {"flavors": [{"id": "1", "name": "m1"}]})
        services = [{"id": "2", "host": "w2"}, {"id": "1", "host": "w1"}]
        api.answer("GET", "compute", "/os-services", {"services": services})

        for _ in range(2):
            assert [flavor.name for flavor in known.flavors()] == ["m1"]
            assert known.hosts() == ("w1", "w2")
        assert [path for _, _, path, _ in api.calls] == ["/flavors/detail", "/os-services"]
        assert api.calls[1][3] == {"binary": "nova-compute"}

    def test_is_shared_by_all_threads_of_the_process(self, api: OpenStackApi) -> None:
        with ThreadPoolExecutor(8) as pool:
            found = {id(n) for n in pool.map(lambda _: names(cloud(api.settings)), range(50))}

        assert len(found) == 1

    def test_is_made_again_when_it_was_forgotten(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "compute", "/flavors/detail", {"flavors": []})
        api.answer("GET", "image", "/images", images(UBUNTU))

        for _ in range(2):
            known.flavors()
            known.image("ubuntu")
            known.forget("flavor")
            known.forget("image", "ubuntu")

        assert len(api.calls) == 4

    def test_is_not_answered_by_the_read_cache(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "compute", "/flavors/detail", {"flavors": []})
        with ReadCache().active():
            for _ in range(2):
                known.flavors()
                known.forget("flavor")

        assert len(api.calls) == 2

    def test_by_id_is_one_request(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "image", f"/images/{ID}", {**UBUNTU, "id": ID})
        api.answer("GET", "network", f"/networks/{ID}", {"network": {**RED, "id": ID}})
        api.answer("GET", "network", f"/security-groups/{ID}", {"security_group": {"id": ID}})

        assert known.image(ID).id == known.network(ID).id == known.security_group(ID).id == ID
        assert len(api.calls) == 3

    def test_of_what_only_looks_like_an_id_goes_by_the_name(
        self, api: OpenStackApi, known: Names
    ) -> None:
        api.answer("GET", "image", f"/images/{ID}", status=404)
        api.answer("GET", "image", "/images", images({**UBUNTU, "name": ID}))

        assert known.image(ID).id == "i1"

    def test_that_may_not_be_made_says_so(self, api: OpenStackApi, known: Names) -> None:
        words = {"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}
        api.answer("GET", "compute", "/os-services", words, status=403)

        with pytest.raises(Denied, match=r"look for the hosts \(test\): Policy doesn't allow"):
            known.hosts()

    def test_goes_with_its_connection(self, api: OpenStackApi) -> None:
        gone = weakref.ref(names(cloud(api.settings)))

        session._connections.clear()
        gc.collect()

        assert gone() is None


class TestAnUnknownName:
    def test_is_refused_by_field_with_names_that_are_close(
        self, api: OpenStackApi, known: Names
    ) -> None:
        api.answer("GET", "image", "/images", images())
        api.answer("GET", "image", "/images", images(UBUNTU, {**UBUNTU, "name": "rocky"}))

        with pytest.raises(
            InvalidSliver, match=r"no image 'ubunto'.*similar names: ubuntu"
        ) as refusal:
            known.image("ubunto")

        assert refusal.value.field == "image"

    def test_is_refused_with_all_names_if_none_is_close(
        self, api: OpenStackApi, known: Names
    ) -> None:
        api.answer("GET", "network", "/networks", networks())
        api.answer("GET", "network", "/networks", networks(RED, {**RED, "name": "blue"}))

        with pytest.raises(InvalidSliver, match="there are blue, red") as refusal:
            known.network("management")

        assert refusal.value.field == "network"

    def test_is_not_refused_with_names_without_end(self, api: OpenStackApi, known: Names) -> None:
        many = [{**RED, "name": f"net{number:02}"} for number in range(30)]
        api.answer("GET", "network", "/networks", networks())
        api.answer("GET", "network", "/networks", networks(*many))

        with pytest.raises(InvalidSliver, match=r"net00, net01.*net09 and 20 more"):
            known.network("management")

    def test_is_refused_where_there_is_nothing_at_all(
        self, api: OpenStackApi, known: Names
    ) -> None:
        api.answer("GET", "network", "/security-groups", {"security_groups": []})

        with pytest.raises(
            InvalidSliver, match=r"no security group 'ssh' \(test\). there are none"
        ):
            known.security_group("ssh")

    def test_is_looked_up_again_the_next_time(self, api: OpenStackApi, known: Names) -> None:
        for found in (images(), images(), images(UBUNTU)):
            api.answer("GET", "image", "/images", found)
        with pytest.raises(InvalidSliver):
            known.image("ubuntu")

        assert known.image("ubuntu").id == "i1"

    @pytest.mark.parametrize("status", ["queued", "saving", "deactivated"])
    def test_is_one_whose_image_cannot_be_used(
        self, api: OpenStackApi, known: Names, status: str
    ) -> None:
        api.answer("GET", "image", "/images", images({**UBUNTU, "status": status}))

        with pytest.raises(InvalidSliver, match=f"image 'ubuntu'.*it is {status}"):
            known.image("ubuntu")


class TestANameOfSeveral:
    def test_is_refused_with_their_ids(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "image", "/images", images(UBUNTU, {**UBUNTU, "id": "i0"}))

        with pytest.raises(InvalidSliver, match=r"2 images.*i0, i1.*use the id") as refusal:
            known.image("ubuntu")

        assert refusal.value.field == "image"

    def test_is_that_of_the_project_or_of_everybody_for_an_administrator_who_sees_all(
        self, api: OpenStackApi, known: Names
    ) -> None:
        theirs = {**RED, "id": "n0", "project_id": OTHERS}
        api.answer("GET", "network", "/networks", networks(theirs, RED))
        private = {**UBUNTU, "id": "i0", "visibility": "private", "owner": OTHERS}
        api.answer("GET", "image", "/images", images(private, UBUNTU))

        assert known.network("red").id == "n1"
        assert known.image("ubuntu").id == "i1"

    def test_is_the_image_that_can_be_used(self, api: OpenStackApi, known: Names) -> None:
        old = {**UBUNTU, "id": "i0", "status": "deactivated"}
        api.answer("GET", "image", "/images", images(old, UBUNTU))

        assert known.image("ubuntu").id == "i1"

    def test_of_others_only_is_refused_too(self, api: OpenStackApi, known: Names) -> None:
        theirs = [{**RED, "id": name, "project_id": OTHERS} for name in ("n2", "n3")]
        api.answer("GET", "network", "/networks", networks(*theirs))

        with pytest.raises(InvalidSliver, match="n2, n3"):
            known.network("red")


class TestAnIdThatIsGone:
    """A network was made anew under its name while its old id is known."""

    @pytest.fixture
    def stale(self, api: OpenStackApi, known: Names) -> Names:
        api.answer("GET", "network", "/networks", networks(RED))
        api.answer("GET", "network", "/networks", networks({**RED, "id": "n2"}))
        known.network("red")
        api.calls.clear()
        return known

    @staticmethod
    def use(api: OpenStackApi, network: str) -> str:
        made = cloud(api.settings).network.create_port(network_id=network)
        return str(made.network_id)

    def answer(self, api: OpenStackApi, status: int, message: str) -> None:
        refused = {"NeutronError": {"type": "X", "message": message, "detail": ""}}
        api.answer("POST", "network", "/ports", refused, status=status)
        api.answer("POST", "network", "/ports", {"port": neutron_port(network_id="n2")})

    @pytest.mark.parametrize(
        ("status", "message"),
        [
            (404, "Network n1 could not be found."),
            (400, "Can not find requested image"),
            (400, "Flavor n1 could not be found."),
            (400, "Invalid input: n1"),
        ],
    )
    def test_is_looked_up_again_and_used_once_more(
        self, api: OpenStackApi, stale: Names, status: int, message: str
    ) -> None:
        self.answer(api, status, message)

        assert stale.resolved("network", "red", lambda network: self.use(api, network)) == "n2"
        assert api.calls == [
            ("POST", "network", "/ports", {"port": {"network_id": "n1"}}),
            ("GET", "network", "/networks", {"name": "red"}),
            ("POST", "network", "/ports", {"port": {"network_id": "n2"}}),
        ]
        assert stale.network("red").id == "n2"

    def test_is_so_also_if_the_error_was_translated(self, api: OpenStackApi, stale: Names) -> None:
        self.answer(api, 404, "Network n1 could not be found.")

        def use(network: str) -> str:
            with translated("make the port"):
                return self.use(api, network)

        assert stale.resolved("network", "red", use) == "n2"

    def test_is_not_so_if_the_api_refused_for_another_reason(
        self, api: OpenStackApi, stale: Names
    ) -> None:
        self.answer(api, 400, "Bad port request")

        with pytest.raises(DriverError), translated("make the port"):
            stale.resolved("network", "red", lambda network: self.use(api, network))

        assert len(api.calls) == 1

    def test_is_not_so_if_it_was_looked_up_just_now(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "network", "/networks", networks(RED))
        self.answer(api, 404, "Network n1 could not be found.")

        with pytest.raises(NotFound), translated("make the port"):
            known.resolved("network", "red", lambda network: self.use(api, network))

        assert [method for method, *_ in api.calls] == ["GET", "POST"]

    def test_and_not_there_any_more_is_refused(self, api: OpenStackApi, known: Names) -> None:
        api.answer("GET", "network", "/networks", networks(RED))
        api.answer("GET", "network", "/networks", networks())
        self.answer(api, 404, "Network n1 could not be found.")
        known.network("red")

        with pytest.raises(InvalidSliver, match="no network 'red'"):
            known.resolved("network", "red", lambda network: self.use(api, network))


def test_a_lookup_does_not_hold_up_another(api: OpenStackApi, known: Names) -> None:
    asked, answered = threading.Event(), threading.Event()

    def hang(_: object) -> tuple[int, Any]:
        asked.set()
        answered.wait(60)
        return 200, images(UBUNTU)

    api.answer("GET", "image", "/images", hang)
    api.answer("GET", "network", "/networks", networks(RED))
    slow = threading.Thread(target=known.image, args=("ubuntu",))
    slow.start()
    asked.wait(60)

    assert known.network("red").id == "n1"
    answered.set()
    slow.join(60)
