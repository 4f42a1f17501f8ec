"""The connection to a cloud: one for each process, shared by threads, and secret about its secrets."""

import gc
import json
import logging
import multiprocessing
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from openstack.connection import Connection
from openstack.proxy import Proxy

from fabric_direct.drivers.openstack.client import session
from fabric_direct.drivers.openstack.client.errors import translated
from fabric_direct.drivers.openstack.client.hidden_servers import server_by_id
from fabric_direct.drivers.openstack.client.session import cloud
from fabric_direct.errors import Denied, InvalidSite, Unreachable, Unsupported
from fabric_direct.site.config import OpenStackSettings
from tests.unit import openstack_api
from tests.unit.openstack_api import (
    PASSWORD,
    TOKEN,
    VERSIONS,
    LoopbackCloud,
    OpenStackApi,
    neutron_port,
)

PORTS = ("GET", "network", "/ports", {})
FORK = multiprocessing.get_context("fork")


def nothing(api: OpenStackApi) -> None:
    """Let the cloud have nothing."""
    api.answer("GET", "compute", "/servers/detail", {"servers": []})
    api.answer("GET", "network", "/ports", {"ports": []})
    api.answer("GET", "volume", "/volumes/detail", {"volumes": []})
    api.answer("GET", "image", "/images", {"images": []})
    api.answer("GET", "identity", "/users", {"users": []})
    api.answer("GET", "placement", "/resource_providers", {"resource_providers": []})


def look(connection: Connection) -> None:
    """Read something of each service."""
    list(connection.compute.servers())
    list(connection.network.ports())
    list(connection.block_storage.volumes())
    list(connection.image.images())
    list(connection.identity.users())
    list(connection.placement.resource_providers())


def at_once(work: Callable[[], object], threads: int = 16) -> list[Any]:
    """Do the same in many threads that begin together."""
    begin = Barrier(threads)

    def run(_: int) -> object:
        begin.wait(60)
        return work()

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


class TestSharing:
    def test_a_process_has_one_connection_for_a_cloud(self, api: OpenStackApi) -> None:
        assert len({id(found) for found in at_once(lambda: cloud(api.settings))}) == 1

    def test_another_limit_is_another_connection(self, api: OpenStackApi) -> None:
        assert cloud(api.settings, call_limit=1) is not cloud(api.settings, call_limit=2)

    def test_settings_that_do_not_matter_to_it_share_it(self, api: OpenStackApi) -> None:
        other = api.settings.model_copy(update={"external_network": "public"})

        assert cloud(api.settings) is cloud(other)

    def test_nothing_is_sent_before_it_is_used(self, api: OpenStackApi) -> None:
        cloud(api.settings)

        assert (api.logins, api.documents, api.calls) == (0, [], [])

    def test_threads_that_begin_together_log_in_once_and_discover_each_service_once(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nothing(api)
        document = api._document

        def slow(path: str) -> tuple[int, dict[str, str], str]:
            # So that all who would ask have time to do so.
            time.sleep(0.1)
            return document(path)

        monkeypatch.setattr(api, "_document", slow)

        at_once(lambda: look(cloud(api.settings)))

        assert api.logins == 1
        assert sorted(api.documents) == [
            "/compute/v2.1",
            "/identity/v3",
            "/image",
            "/placement",
            "/volume/v3",
        ]

    def test_a_warm_read_is_one_request(self, api: OpenStackApi) -> None:
        nothing(api)
        connection = cloud(api.settings)
        look(connection)
        before = len(api.documents)

        look(cloud(api.settings))

        assert api.logins == 1
        assert len(api.documents) == before
        assert len(api.calls) == 12

    def test_the_newest_microversion_that_both_know_is_spoken(self, api: OpenStackApi) -> None:
        nothing(api)

        look(cloud(api.settings))

        said = [request.headers.get("OpenStack-API-Version") for request in api.requests]
        assert said[0] == "compute 2.93"
        assert said[2] == "volume 3.70"

    def test_a_server_is_asked_for_by_id_in_one_in_which_nova_shows_those_of_a_silent_cell(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(VERSIONS["/compute/v2.1"][2], "version", "2.100")
        api.answer("GET", "compute", "/servers/s1", {"server": {"id": "s1", "status": "UNKNOWN"}})

        with pytest.raises(Unreachable, match="a cell does not answer, which has s1"):
            server_by_id(cloud(api.settings), "s1")

        assert api.requests[-1].headers["OpenStack-API-Version"] == "compute 2.97"

    def test_it_says_who_asks(self, api: OpenStackApi) -> None:
        nothing(api)

        look(cloud(api.settings))

        assert all(
            request.headers["User-Agent"].startswith("fabric-direct/") for request in api.requests
        )

    def test_answers_are_not_cached_whatever_clouds_yaml_says(self, api: OpenStackApi) -> None:
        content = json.loads(api.clouds.read_text())
        content["cache"] = {"class": "dogpile.cache.memory", "expiration": {"network.ports": 60}}
        api.clouds.write_text(json.dumps(content))
        nothing(api)

        for _ in range(2):
            list(cloud(api.settings).network.ports())

        assert api.calls == [PORTS, PORTS]


class TestDiscovery:
    def test_a_service_that_was_down_at_first_is_discovered_later(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
        nothing(api)
        api.refused.add("/compute/v2.1")
        with pytest.raises(Unreachable, match=r"cannot use the compute API .*version"):
            list(cloud(api.settings).compute.servers())
        assert api.calls == []
        api.refused.clear()

        list(cloud(api.settings).compute.servers())

        assert api.requests[-1].headers["OpenStack-API-Version"] == "compute 2.93"

    @pytest.mark.parametrize(
        ("path", "name"), [("/volume/v3", "block storage"), ("/image", "image")]
    )
    def test_a_service_that_does_not_tell_its_versions_is_unreachable(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch, path: str, name: str
    ) -> None:
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
        nothing(api)
        api.refused.add(path)

        with pytest.raises(Unreachable, match=f"cannot use the {name} API"):
            getattr(cloud(api.settings), name.replace(" ", "_"))

    def test_one_that_is_down_does_not_touch_the_others(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
        nothing(api)
        api.refused.add("/volume/v3")

        list(cloud(api.settings).compute.servers())

        assert "/volume/v3" not in api.documents

    def test_a_service_that_the_cloud_does_not_have_is_unsupported(self, api: OpenStackApi) -> None:
        api.write_clouds(has_placement=False)

        with pytest.raises(Unsupported, match="cannot look"), translated("look"):
            list(cloud(api.settings).placement.resource_providers())


class TestTokens:
    def test_one_that_expired_is_renewed_and_the_request_repeated(self, api: OpenStackApi) -> None:
        nothing(api)
        connection = cloud(api.settings)
        list(connection.network.ports())
        api.refused.add(api.token)

        list(connection.network.ports())

        assert api.logins == 2
        assert api.calls == [PORTS] * 3

    def test_a_post_that_met_an_expired_one_is_carried_out_once(self, api: OpenStackApi) -> None:
        nothing(api)
        made: list[object] = []

        def make(request: object) -> tuple[int, Any]:
            made.append(request)
            return 201, {"port": neutron_port()}

        api.answer("POST", "network", "/ports", make)
        connection = cloud(api.settings)
        list(connection.network.ports())
        api.refused.add(api.token)

        assert connection.network.create_port(name="p").id == "p"
        assert len(made) == 1

    def test_one_that_expired_under_many_threads_fails_none_of_them(
        self, api: OpenStackApi
    ) -> None:
        nothing(api)
        connection = cloud(api.settings)
        for _ in range(5):
            list(connection.network.ports())
            api.refused.add(api.token)

            assert at_once(lambda: list(connection.network.ports())) == [[]] * 16

    def test_one_that_another_thread_dropped_first_is_renewed_too(self, api: OpenStackApi) -> None:
        nothing(api)
        connection = cloud(api.settings)

        def expire(_: object) -> tuple[int, Any]:
            connection.session.auth.invalidate()
            return 401, None

        api.answer("GET", "network", "/subnets", expire)
        api.answer("GET", "network", "/subnets", {"subnets": []})

        assert list(connection.network.subnets()) == []

    def test_one_that_the_api_refuses_again_is_not_renewed_for_ever(
        self, api: OpenStackApi
    ) -> None:
        api.answer("GET", "network", "/ports", status=401)

        with pytest.raises(Denied), translated("look"):
            list(cloud(api.settings).network.ports())

        assert api.logins == 2
        assert api.calls == [PORTS] * 2


class TestAWrongPassword:
    @pytest.fixture(autouse=True)
    def wrong(self, api: OpenStackApi) -> None:
        nothing(api)
        api.refused.add("tr0ub4dor&3")
        api.write_clouds(password="tr0ub4dor&3")  # noqa: S106 - it opens nothing

    def test_is_told_but_not_shown(self, api: OpenStackApi) -> None:
        with pytest.raises(Denied, match=r"requires authentication.*clouds\.yaml") as refusal:
            list(cloud(api.settings).network.ports())

        assert "tr0ub4dor" not in str(refusal.value)
        assert api.calls == []

    def test_can_be_put_right_while_the_process_runs(self, api: OpenStackApi) -> None:
        with pytest.raises(Denied):
            list(cloud(api.settings).network.ports())
        api.write_clouds()

        assert list(cloud(api.settings).network.ports()) == []

    def test_leaves_no_connection_behind(self, api: OpenStackApi) -> None:
        connection = weakref.ref(cloud(api.settings))
        with pytest.raises(Denied):
            list(cloud(api.settings).network.ports())
        gc.collect()

        assert connection() is None


class TestCloudsYaml:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.delenv("OS_CLIENT_CONFIG_FILE", raising=False)
        return tmp_path / "clouds.yaml"

    def refusal(self, path: Path, name: str = "test") -> InvalidSite:
        with pytest.raises(InvalidSite) as refusal:
            cloud(OpenStackSettings(cloud=name, clouds_file=path))
        return refusal.value

    def test_that_is_not_there_is_named(self, path: Path) -> None:
        refusal = self.refusal(path)

        assert refusal.field == "openstack.clouds_file"
        assert f"({path}): No such file" in str(refusal)

    def test_without_the_cloud_is_refused_by_field(self, path: Path) -> None:
        path.write_text("clouds: {other: {auth: {auth_url: 'http://cloud.test'}}}")

        refusal = self.refusal(path)

        assert refusal.field == "openstack.cloud"
        assert "Cloud test was not found" in str(refusal)

    def test_without_credentials_says_which_are_missing(self, path: Path) -> None:
        path.write_text("clouds: {test: {auth: {username: fabric}}}")

        refusal = self.refusal(path)

        assert refusal.field == "openstack.cloud"
        assert "auth_url" in str(refusal)

    def test_without_a_password_is_refused_before_anything_is_asked(
        self, api: OpenStackApi, path: Path
    ) -> None:
        path.write_text(api.clouds.read_text().replace(PASSWORD, ""))

        refusal = self.refusal(path)

        assert "test has no password" in str(refusal)
        assert refusal.remedy == "put it into a file secure.yaml beside clouds.yaml"
        assert api.documents == []

    def test_may_have_its_password_in_a_file_of_its_own(
        self, api: OpenStackApi, path: Path
    ) -> None:
        nothing(api)
        path.write_text(api.clouds.read_text().replace(PASSWORD, ""))
        path.with_name("secure.yaml").write_text(
            f"clouds: {{test: {{auth: {{password: {PASSWORD}}}}}}}"
        )
        settings = OpenStackSettings(cloud="test", clouds_file=path)

        assert list(cloud(settings).network.ports()) == []

    def test_that_is_not_text_is_refused(self, path: Path) -> None:
        path.write_bytes(b"\xff\xfe\x00hunter2")

        assert "it is not text" in str(self.refusal(path))

    @pytest.mark.parametrize(
        "wrong",
        ["password: [hunter2", "password: *hunter2", "password: !hunter2 [", "password: 'hunter2"],
    )
    def test_that_is_not_yaml_is_told_by_its_line_and_not_shown(
        self, path: Path, wrong: str
    ) -> None:
        path.write_text(f"clouds:\n  test:\n    auth:\n      {wrong}\n")

        refusal = self.refusal(path)

        assert f"{path}, line " in str(refusal)
        assert "hunter2" not in str(refusal)
        assert "hunter2" not in repr(refusal.__cause__)

    def test_that_site_yaml_names_is_preferred_to_the_environments(
        self, api: OpenStackApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nothing(api)
        (tmp_path / "other.yaml").write_text("clouds: {}")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "other.yaml"))
        monkeypatch.setenv("OS_PASSWORD", "hunter2")

        assert list(cloud(api.settings).network.ports()) == []

    def test_is_found_by_the_environment(
        self, api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nothing(api)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(api.clouds))

        assert list(cloud(OpenStackSettings(cloud="test")).network.ports()) == []


def test_neither_password_nor_token_nor_contents_are_ever_logged(
    api: OpenStackApi, caplog: pytest.LogCaptureFixture
) -> None:
    for logger in (None, "fabric_direct"):
        caplog.set_level(logging.DEBUG, logger)
    nothing(api)
    answer = {"server": {"id": "s", "adminPass": "hunter2"}}
    api.answer("POST", "compute", "/servers", answer, status=202)
    api.answer("GET", "network", "/ports", status=404)
    connection = cloud(api.settings)

    look_at = connection.compute.create_server(name="s", user_data="c2VjcmV0IHVzZXIgZGF0YQ==")
    with pytest.raises(Exception, match="network"), translated("use the network API"):
        connection.network.get("/subnets").raise_for_status()
    api.refused.add(api.token)
    list(connection.compute.servers())

    assert look_at.id == "s"
    assert "POST http://cloud.test/compute/v2.1/servers: 202" in caplog.text
    for secret in (PASSWORD, TOKEN, "hunter2", "c2VjcmV0"):
        assert secret not in caplog.text


IMPORTED = """
import sys
from fabric_direct.site.config import OpenStackSettings
from fabric_direct.drivers.openstack.client.session import cloud
connection = cloud(OpenStackSettings.model_validate_json(sys.argv[1]))
before = set(sys.modules)
list(connection.network.ports())
print(*sys.modules.keys() - before)
"""
"""What a first request imports."""


HANGS = 600
"""Seconds after which a child hangs: it collects the garbage of all tests, on a busy machine."""


def read_ports(settings: OpenStackSettings) -> int:
    """What a pool worker does: lose what nobody holds but a cache of openstacksdk, use the cloud."""
    Proxy._extract_name.cache_clear()
    gc.collect()
    return len(list(cloud(settings).network.ports()))


@pytest.mark.timeout(HANGS)
def test_a_cloud_that_tells_its_versions_to_nobody_is_an_error_and_no_end_of_waiting(
    api: OpenStackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keystoneauth asks again with a token for it, in the midst of the login that is to give one."""
    nothing(api)
    _, *version = openstack_api.VERSIONS["/identity/v3"]
    with monkeypatch.context() as patched:
        patched.setitem(openstack_api.VERSIONS, "/identity/v3", (401, *version))
        with pytest.raises(Unreachable, match="tells its versions to nobody"):
            read_ports(api.settings)

    assert read_ports(api.settings) == 0


class TestForks:
    def test_a_worker_has_a_connection_of_its_own_and_its_parent_keeps_its_own(
        self, loopback: LoopbackCloud
    ) -> None:
        nothing(loopback)
        connection = cloud(loopback.settings)
        list(connection.network.ports())
        used = loopback.connections

        with ProcessPoolExecutor(1, FORK) as pool:
            assert pool.submit(read_ports, loopback.settings).result(60) == 0
        by_worker = loopback.connections - used
        list(connection.network.ports())

        assert by_worker == 1
        assert loopback.connections == used + by_worker
        assert cloud(loopback.settings) is connection
        assert loopback.logins == 2

    def test_a_fork_in_the_midst_of_other_threads_requests_harms_nobody(
        self, loopback: LoopbackCloud
    ) -> None:
        nothing(loopback)
        connection = cloud(loopback.settings)
        over: list[bool] = []
        failed: list[Exception] = []

        def call() -> None:
            while not over:
                try:
                    list(connection.network.ports())
                except Exception as error:  # noqa: BLE001 - told below
                    failed.append(error)
                    return

        callers = [Thread(target=call) for _ in range(3)]
        children = [FORK.Process(target=read_ports, args=(loopback.settings,)) for _ in range(10)]
        for each in (*callers, *children):
            each.start()
        children[0].join(HANGS)
        over.append(True)  # the other children began while the first one worked
        for caller in callers:
            caller.join()
        for child in children:
            child.join(HANGS)
            child.kill()

        assert [child.exitcode for child in children] == [0] * 10
        assert failed == []

    def test_a_request_imports_nothing(self, loopback: LoopbackCloud) -> None:
        nothing(loopback)

        # Who forks while another thread imports a module has a child that cannot import it.
        words = [sys.executable, "-c", IMPORTED, loopback.settings.model_dump_json()]
        assert subprocess.check_output(words).split() == []

    def test_a_fork_while_another_thread_holds_the_lock_does_not_stop_the_child(
        self, loopback: LoopbackCloud
    ) -> None:
        nothing(loopback)
        with session._lock:
            child = FORK.Process(target=read_ports, args=(loopback.settings,))
            child.start()
            child.join(HANGS)
        child.kill()

        assert child.exitcode == 0

    def test_a_child_closes_nothing_when_it_forgets(self, loopback: LoopbackCloud) -> None:
        nothing(loopback)
        list(cloud(loopback.settings).network.ports())
        adapter = cloud(loopback.settings).session.session.get_adapter(loopback.base)
        (mutex,) = (pool.pool.mutex for pool in adapter.poolmanager.pools._container.values())
        del adapter
        gc.collect()

        # As a thread of the parent may hold it at that moment: who closes the pool waits for ever.
        with mutex:
            child = FORK.Process(target=read_ports, args=(loopback.settings,))
            child.start()
            child.join(HANGS)
        child.kill()

        assert child.exitcode == 0

    def test_a_child_that_ends_like_any_program_leaves_its_parents_connection_alone(
        self, loopback: LoopbackCloud
    ) -> None:
        nothing(loopback)

        ended = subprocess.run(
            [sys.executable, "-c", PARENT, str(loopback.clouds)], timeout=HANGS, check=False
        )

        assert ended.returncode == 0
        assert loopback.calls == [PORTS, PORTS]
        assert loopback.connections == 1


PARENT = """
import os, sys
from pathlib import Path
from fabric_direct.site.config import OpenStackSettings
from fabric_direct.drivers.openstack.client.session import cloud

connection = cloud(OpenStackSettings(cloud="test", clouds_file=Path(sys.argv[1])))
list(connection.network.ports())
if (child := os.fork()) == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
list(connection.network.ports())
"""
