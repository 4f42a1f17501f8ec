# make demo     the whole life of a VM on this machine, from nothing
# make test     the tests, unit and functional
# make bench    the figures, as ratios to the bare calls of the same run
# make lint     ruff, mypy --strict, import-linter
# make demo-openstack, test-openstack, bench-openstack: the same on an OpenStack that is set up here
# make test-fabric: the AM actor's handlers, with the real fabric-cf and fabric-fim, in environments of their own
# make demo-actor: two VMs by the AM actor's processors, its own and ours, on this machine
# make demo-worker, test-worker, bench-worker: devices, on a worker without hardware that is booted here
# make demo-placement: a zone with two zones below it places eight VMs; two of them are made on this machine
#
# What is missing is installed: system packages by apt, Python packages into .venv.

# libvirt's system instance is root's.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
PYTHON := .venv/bin/python
LAB := labs/local/lab
OPENSTACK := labs/openstack/lab
WORKER := labs/worker/lab
# What else needs the cloud's images: a guest that configures its NICs by all that Debian has; the actor's handlers
DEBIAN := tests/functional/test_guest_network.py::TestDebian
ON_A_CLOUD := tests/fabric/test_cloud.py
# uv reads no pip.conf: hand it the index that pip was told to use, if any.
INDEX = $(shell .venv/bin/pip config get global.index-url 2>/dev/null)
UV = .venv/bin/uv $(1) $(if $(INDEX),--default-index $(INDEX)) --python $(PYTHON) -q

.PHONY: demo test test-unit bench lint build constraints system lab clean
.PHONY: demo-openstack test-openstack bench-openstack openstack
.PHONY: demo-worker test-worker bench-worker worker
.PHONY: test-fabric demo-actor demo-placement

demo: lab
	$(SUDO) examples/demo

test: lab
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -p no:cacheprovider $(PYTEST_ARGS)

demo-openstack: openstack
	$(SUDO) examples/demo openstack

test-openstack: openstack
	$(OPENSTACK) image --cloud-init
	$(OPENSTACK) up
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -p no:cacheprovider tests/openstack $(DEBIAN) $(PYTEST_ARGS)
	labs/fabric/env fim
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 build/fabric/fim/bin/python -m pytest -p no:cacheprovider $(ON_A_CLOUD)

bench-openstack: openstack
	$(SUDO) $(PYTHON) -m tests.bench.openstack

test-fabric: lab
	labs/fabric/env cf
	labs/fabric/env fim
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 build/fabric/cf/bin/python -m pytest -p no:cacheprovider tests/fabric --ignore $(ON_A_CLOUD) $(PYTEST_ARGS)
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 build/fabric/fim/bin/python -m pytest -p no:cacheprovider tests/fabric --ignore $(ON_A_CLOUD) $(PYTEST_ARGS)

demo-actor: lab
	labs/fabric/env cf
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 build/fabric/cf/bin/python examples/actor/demo.py

demo-placement: lab
	$(SUDO) examples/placement-demo/demo

demo-worker: worker
	$(SUDO) examples/demo worker

test-worker: worker
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m pytest -p no:cacheprovider tests/worker $(PYTEST_ARGS)

bench-worker: worker
	$(SUDO) $(PYTHON) -m tests.bench.worker

test-unit: .venv/installed
	$(PYTHON) -m pytest tests/unit $(PYTEST_ARGS)

bench: lab
	$(SUDO) $(PYTHON) -m tests.bench

lint: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

build: .venv/installed
	rm -rf dist
	.venv/bin/python -m build --no-isolation

system:
	$(LAB) install

lab: system .venv/installed
	$(LAB) up
	$(LAB) image

openstack: lab
	$(OPENSTACK) install
	$(OPENSTACK) image
	$(OPENSTACK) up

worker: .venv/installed
	$(WORKER) install
	$(WORKER) build
	$(WORKER) up

.venv/installed: pyproject.toml constraints.txt | system
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check uv
	$(call UV,pip install) --require-hashes -r constraints.txt
	$(call UV,pip install) --no-deps --no-build-isolation -e .
	touch $@

# Exact versions with their hashes, and no word of where they came from.
constraints: .venv/installed
	.venv/bin/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header -q --upgrade -o constraints.txt

clean:
	rm -rf .venv dist build
