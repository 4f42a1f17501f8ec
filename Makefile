# `make help` lists the targets. What is missing is installed: system packages by apt, Python packages into .venv.

# What root runs keeps its bytecode below build/, where no other user's files are.
# libvirt's system instance is root's.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
KEEPING := env PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache
# Each of the many processes of the tests would compile all files anew.
unexport PYTHONDONTWRITEBYTECODE
PYTHON := .venv/bin/python
LAB := labs/local/lab
OPENSTACK := labs/openstack/lab
# Debian 12's OpenStack by RELEASE=zed; the agents of Open vSwitch instead of OVN by OPENSTACK_NETWORK=ovs.
export FABRIC_OPENSTACK_RELEASE := $(RELEASE)
export FABRIC_OPENSTACK_NETWORK := $(OPENSTACK_NETWORK)
WORKER := labs/worker/lab
NETWORK := labs/network/lab
ONESITE := labs/onesite/lab
IRONIC := labs/ironic/lab
POSTGRESQL := labs/postgresql/lab
# They need what the other labs build: a guest that configures its NICs by all that Debian has; the actor on a cloud
DEBIAN := tests/functional/test_guest_network.py::TestDebian
ON_A_CLOUD := tests/fabric/test_cloud.py
ON_A_SITE := tests/fabric/test_site.py
# What a package of Debian is tried with; and the Pythons that are supported.
CODENAME = $(shell . /etc/os-release && echo $$VERSION_CODENAME)
BESIDE_DEB := bash-completion,ca-certificates,fish,man-db,systemd,zsh
VERSIONS := 3.11 3.12 3.13
UV = requirements/uv .venv $(1) --python $(PYTHON) -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-trust test-functional test-all bench lint docs docs-serve build deb test-deb test-python
.PHONY: constraints requirements system lab clean test-at-hand test-metrics test-page test-trust-share test-trust-whole test-debian
.PHONY: demo-openstack test-openstack test-openstack-share bench-openstack bench-scale bench-hosts openstack openstack-down
.PHONY: demo-worker test-worker test-worker-share test-worker-facts bench-worker worker
.PHONY: demo-network test-network bench-network network
.PHONY: test-ironic test-ironic-share demo-baremetal bench-ironic ironic ironic-down
.PHONY: test-fabric demo-actor demo-placement demo-conductors test-database test-conductors bench-conductors postgresql
.PHONY: check test-whole demo-site test-site site worker-built

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-20s %s\n", $$1, $$2}' Makefile

demo: lab ## the life of a VM on this machine, from nothing (1 min)
	$(SUDO) examples/demo

test: test-at-hand test-functional ## unit tests, a share of the trust suite, tests of the package, functional tests (9 min)

# They wait for most of their time: more of them at once than there are cores. Those that share a guest stay together.
SHARING := -n 6 --dist loadgroup
test-functional: lab ## the tests on this machine's libvirt, QEMU and netlink (5 min)
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider $(SHARING) tests/functional --deselect $(DEBIAN) $(PYTEST_ARGS)

test-page: .venv/installed ## the page in a headless browser, which is installed: 113 MB (1 min)
	$(LAB) browser
	$(PYTHON) -m pytest -p no:cacheprovider tests/page $(PYTEST_ARGS)

test-debian: lab ## NICs and volumes of a guest that is a whole Debian (8 min)
	$(OPENSTACK) image --cloud-init
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider $(DEBIAN) $(PYTEST_ARGS)

demo-openstack: openstack ## the same life on an OpenStack that is set up here (3 min)
	$(SUDO) examples/demo openstack

# The lab is this machine's, and root's; another cloud is asked as clouds.yaml says, and nothing is started here.
ifdef FABRIC_CLOUD
test-openstack: $(if $(wildcard .venv/installed),,.venv/installed)
test-openstack: RUN = $(KEEPING)
else
test-openstack: openstack
test-openstack: IMAGES = --cloud-init
test-openstack: RUN = $(SUDO) $(KEEPING)
test-openstack: AT_ONCE = -n 2
endif
# Much of their time is waiting for the services. The longest tests begin. PYTEST_ARGS="-n 2" does the same on a cloud of
# one's own, which needs that many VLANs and flat networks.
SIDE_BY_SIDE := --dist loadgroup --no-loadscope-reorder
test-openstack: ## the tests on an OpenStack: the lab's, or FABRIC_CLOUD of clouds.yaml (20 min)
	labs/fabric/env fim
	$(RUN) $(PYTHON) -m pytest -p no:cacheprovider $(SIDE_BY_SIDE) $(AT_ONCE) tests/openstack $(PYTEST_ARGS)
	$(RUN) build/fabric/fim/bin/python -m pytest -p no:cacheprovider $(ON_A_CLOUD)

test-openstack-share: openstack ## one life of a server on the lab's OpenStack, one that fails, one that is killed (2 min)
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider -m share tests/openstack $(PYTEST_ARGS)

bench-openstack: openstack ## the figures on OpenStack, as ratios to the bare calls (10 min)
	$(SUDO) $(PYTHON) -m tests.bench.openstack
	$(PYTHON) -m tests.bench.report

# What depends on no version of theirs is tested once, with fabric-cf.
ONCE := tests/fabric/test_local.py tests/fabric/test_names.py
test-fabric: lab ## the AM actor's handlers, with the real fabric-cf and fabric-fim (2 min)
	labs/fabric/env cf
	labs/fabric/env fim
	$(SUDO) $(KEEPING) build/fabric/cf/bin/python -m pytest -p no:cacheprovider $(SHARING) tests/fabric $(addprefix --ignore ,$(ON_A_CLOUD) $(ON_A_SITE)) $(PYTEST_ARGS)
	$(SUDO) $(KEEPING) build/fabric/fim/bin/python -m pytest -p no:cacheprovider $(SHARING) tests/fabric $(addprefix --ignore ,$(ON_A_CLOUD) $(ON_A_SITE) $(ONCE)) $(PYTEST_ARGS)

demo-actor: lab ## two VMs by the AM actor's processors, its own and ours (1 min)
	labs/fabric/env cf
	$(SUDO) $(KEEPING) build/fabric/cf/bin/python examples/actor/demo.py

demo-placement: lab ## a zone with two zones below it places eight VMs, and makes two (1 min)
	$(SUDO) $(KEEPING) examples/placement-demo/demo

demo-conductors: lab postgresql ## two conductors, one of which is killed while it makes a VM (1 min)
	$(SUDO) $(KEEPING) examples/conductors/demo

demo-worker: worker ## devices on a worker without hardware that is booted here (5 min)
	$(SUDO) examples/demo worker

# PYTEST_ARGS="-n 2 --dist loadgroup" runs them on two, the second one booted by FABRIC_WORKER=1 labs/worker/lab up.
test-worker: worker ## the tests on that worker (27 min)
	$(SUDO) $(KEEPING) $(WORKER) guard $(PYTHON) -m pytest -p no:cacheprovider $(or $(FILES),tests/worker) $(PYTEST_ARGS)

test-worker-share: worker ## one life of a VM with devices on that worker, one that fails, two that are killed (3 min)
	$(SUDO) $(KEEPING) $(WORKER) guard $(PYTHON) -m pytest -p no:cacheprovider -m share tests/worker $(PYTEST_ARGS)

test-worker-facts: worker ## what libvirt and the kernel of that worker do, whatever was checked before (6 min)
	$(SUDO) $(KEEPING) FACTS=1 $(PYTHON) -m pytest -p no:cacheprovider tests/worker/test_facts.py $(PYTEST_ARGS)

bench-worker: worker ## the figures on that worker (10 min)
	$(SUDO) $(PYTHON) -m tests.bench.worker
	$(PYTHON) -m tests.bench.report

# Each process has two switches of its own. Much of their time is waiting.
KILLED := tests/network/test_vpn.py::test_killed_between_any_two_changes_each_operation_is_continued
OWN_SWITCHES := --dist worksteal --tx "3*popen//python=$(NETWORK) private $(PYTHON)"
test-network: lab ## network services on two Open vSwitches that are started here (3 min; all with WHOLE=1: 4 min)
	$(NETWORK) install
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider $(OWN_SWITCHES) tests/network $(if $(WHOLE),,--deselect $(KILLED)) $(PYTEST_ARGS)

bench-network: lab ## the figures on two Open vSwitches that are started here (1 min)
	$(NETWORK) install
	$(SUDO) $(NETWORK) private $(PYTHON) -m tests.bench.network
	$(PYTHON) -m tests.bench.report

demo-network: lab network ## two VMs on two switches: a segment, routed networks, a mirror (2 min)
	$(NETWORK) workers
	$(SUDO) examples/stitched/demo

test-ironic: ironic ## the tests on an Ironic that is set up here: emulated machines, fake hardware (4 min; VIFs too with NEUTRON=1; disks too with FULL=1: 20 min)
	$(SUDO) $(KEEPING) env FULL=$(FULL) $(PYTHON) -m pytest -p no:cacheprovider tests/ironic $(PYTEST_ARGS)

test-ironic-share: ironic ## lives of a machine and of nodes on that Ironic, one for two slivers, one that is killed (2 min)
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider -m share tests/ironic $(PYTEST_ARGS)

demo-baremetal: ironic ## the life of a whole machine on that Ironic (1 min)
	$(SUDO) examples/bare-metal/demo

bench-ironic: ironic ## the figures on that Ironic, as ratios to the bare calls (5 min)
	$(SUDO) $(PYTHON) -m tests.bench.ironic
	$(PYTHON) -m tests.bench.report

demo-site: site ## a server of that OpenStack with devices of a worker (10 min)
	$(SUDO) examples/demo onesite

# The worker's kernel may stop: then another takes its place, and what it interrupted runs once more.
test-site: site ## the tests of such servers (9 min)
	labs/fabric/env fim
	$(SUDO) $(KEEPING) $(ONESITE) guard $(PYTHON) -m pytest -p no:cacheprovider tests/site $(PYTEST_ARGS)
	$(SUDO) $(KEEPING) $(ONESITE) guard build/fabric/fim/bin/python -m pytest -p no:cacheprovider $(ON_A_SITE)

# Some tests take a hundred times as long as others, and few share a fixture: who is done takes from the rest. A third of
# their time is waiting: two processes for each core, to which they keep.
AT_HAND := -n $(shell echo $$(($$(nproc) * 2))) --dist worksteal
test-unit: .venv/installed ## the tests that need no daemon (3 min)
	$(PYTHON) -m pytest $(AT_HAND) tests/unit $(PYTEST_ARGS)

check: lint ## before each commit: lint, and the unit tests of what changed since main; BASE= another branch (3 min)
	@files=$$($(PYTHON) -m tests.changed $(BASE)) && if [ "$$files" ]; then $(PYTHON) -m pytest $(AT_HAND) $$files $(PYTEST_ARGS); fi

# Together they are collected once.
test-at-hand: .venv/installed
	$(PYTHON) -m pytest $(AT_HAND) tests/unit tests/trust tests/package $(PYTEST_ARGS)

# Debian's, unpacked: nothing is installed, and no service begins.
build/prometheus/usr/bin/prometheus:
	mkdir -p build/prometheus
	cd build/prometheus && { apt-get download -q prometheus || { $(SUDO) apt-get update -q && apt-get download -q prometheus; }; }
	cd build/prometheus && dpkg-deb -x prometheus_*.deb .

bench-conductors: postgresql ## the figures of conductors on a PostgreSQL that is set up here (5 min)
	$(PYTHON) -m tests.bench.conductors
	$(PYTHON) -m tests.bench.report

# Each process of the tests has a server of its own, which is stopped and killed.
OWN_DATABASES := -n $(shell echo $$(($$(nproc) + 1))) --dist worksteal
test-database: postgresql ## a site's state in PostgreSQLs that are set up here: processes and servers that die (2 min)
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider $(OWN_DATABASES) tests/database $(PYTEST_ARGS)

test-conductors: postgresql ## those of them that are of conductors, and of their queue (1 min)
	$(SUDO) $(KEEPING) $(PYTHON) -m pytest -p no:cacheprovider $(OWN_DATABASES) tests/database/test_queue.py tests/database/test_conductors.py $(PYTEST_ARGS)

test-metrics: .venv/installed build/prometheus/usr/bin/prometheus ## the metrics, dashboard and alerts, with a real Prometheus (20 s)
	$(PYTHON) -m pytest tests/metrics $(PYTEST_ARGS)

test-trust-share: .venv/installed ## a share of the next: each operation, each parser (1 min)
	$(PYTHON) -m pytest $(AT_HAND) tests/trust $(PYTEST_ARGS)

test-trust: .venv/installed ## every call that can fail, and hostile input; TRUST=matrix is one part (3 min)
	$(PYTHON) -m tests.trust $(TRUST)
	$(PYTHON) -m pytest $(AT_HAND) tests/trust/service_requests.py

test-trust-whole: .venv/installed ## the same with 1,000,000 hostile inputs, all requests, more lives (2 h)
	$(PYTHON) -m tests.trust --whole $(TRUST)

test-whole: .venv/installed ## every suite whole, and what each showed into docs/verified.md; PART=worker is one (2.5 h)
	@$(PYTHON) -m tests.whole $(PART)

test-all: ## all that CI runs: tests, a share of those of each lab, checks, the wheel (25 min)
	.ci/run

bench-scale: .venv/installed ## 1 to 1,000 slivers at once, on a stand-in for OpenStack (8 min)
	NO_PROXY=127.0.0.1 $(PYTHON) -m tests.bench.scale
	$(PYTHON) -m tests.bench.report

bench-hosts: .venv/installed ## 10,000 slivers on 200 hosts, on fakes (6 min)
	$(PYTHON) -m tests.bench.many_hosts
	$(PYTHON) -m tests.bench.report

bench: lab ## the figures on this machine, as ratios to the bare calls (3 min)
	$(SUDO) $(PYTHON) -m tests.bench
	$(PYTHON) -m tests.bench.report

# What is sent to a worker runs on Python 3.6 and later.
lint: .venv/installed ## ruff, mypy --strict, import-linter, vermin (20 s)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/vermin --target=3.6- --eval-annotations --no-tips --violations fabric_direct/drivers/hosts/agent

# Material says at each start until when it is kept: docs/decisions/0062.
MKDOCS := NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs
docs: .venv/installed ## the documentation as a site, in build/site; fails at a broken link (15 s)
	$(MKDOCS) build --strict

docs-serve: .venv/installed ## the same at http://127.0.0.1:8000, made anew when a page changes
	$(MKDOCS) serve --strict

build: .venv/installed ## the wheel and the source distribution, checked (10 s)
	rm -rf dist
	.venv/bin/python -m build --no-isolation
	.venv/bin/check-wheel-contents dist/*.whl

deb: system build ## a package of this Debian with all that runs, in dist/ (1 min)
	command -v dpkg-shlibdeps >/dev/null || $(SUDO) apt-get install -q -y --no-install-recommends dpkg-dev
	packaging/deb

test-deb: deb ## the same installed, used, run by systemd, upgraded and removed in a root of this Debian (4 min)
	$(SUDO) labs/debian/root $(CODENAME) $(BESIDE_DEB) /mnt/labs/debian/try-deb

test-python: system ## the unit tests under each Python of VERSIONS, which is here or in a Debian (6 min)
	$(SUDO) labs/debian/test-python $(VERSIONS)

system:
	$(LAB) install

lab: system .venv/installed
	$(LAB) up
	$(LAB) image

openstack: lab
	$(OPENSTACK) install
	$(OPENSTACK) image $(IMAGES)
	$(OPENSTACK) up

worker: worker-built
	$(WORKER) up

network: .venv/installed
	$(NETWORK) install
	$(NETWORK) up

postgresql: .venv/installed
	labs/install postgresql
	$(POSTGRESQL) up

ironic: .venv/installed
	$(IRONIC) install
	$(IRONIC) build $(if $(FULL),--full) $(if $(NEUTRON),--neutron)
	$(IRONIC) up $(if $(FULL),--full) $(if $(NEUTRON),--neutron)

openstack-down: ## end that OpenStack, and the worker that belongs to it; their data stay
	$(ONESITE) down

ironic-down: ## end that Ironic; nothing of it goes on
	$(IRONIC) down

site: openstack worker-built
	$(ONESITE) up

worker-built: .venv/installed
	$(WORKER) install
	$(WORKER) build

.venv/installed: pyproject.toml constraints.txt | system
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check uv
	$(call UV,pip install) --compile-bytecode --require-hashes -r constraints.txt
	$(call UV,pip install) --no-deps --no-build-isolation -e .
	touch $@

# Exact versions, and no word of where they came from: of all tools; of what runs; the latter without hashes, for pip's -c.
PINNED := --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header -q
RUNNING := $(foreach extra,al2s database libvirt metrics nso openstack otel page placement zones,--extra $(extra))
constraints: .venv/installed ## newer versions into constraints.txt and requirements/ (30 s)
	$(call UV,pip compile) pyproject.toml $(PINNED) --all-extras --generate-hashes --upgrade -o constraints.txt
	$(MAKE) requirements

requirements: .venv/installed ## those of constraints.txt into requirements/ (10 s)
	$(call UV,pip compile) pyproject.toml $(PINNED) $(RUNNING) -c constraints.txt --generate-hashes -o requirements/running.txt
	$(call UV,pip compile) pyproject.toml $(PINNED) $(RUNNING) -c constraints.txt -o requirements/pins.txt

clean: ## remove what was built in this directory
	rm -rf .venv dist build
