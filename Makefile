# Every command anyone needs; `make` lists them.
SHELL := /bin/bash
# all tests run on the Python of the image, and what may differ between versions runs on the lowest one too
IMAGE_PYTHON  := 3.12
LOWEST_PYTHON := 3.11
PY    ?= $(or $(shell tools/python $(IMAGE_PYTHON) 2>/dev/null),python3)
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
CONSOLE := src/vgpuscope/http/assets/console/index.html
CONSOLE_SOURCES := $(shell find web -path web/node_modules -prune -o -type f -print 2>/dev/null)
# many tests wait for another program, so `make test` has three workers more than CI has cores
WORKERS ?= 5
.DEFAULT_GOAL := help
# compiled modules are kept, whatever the machine says: every service that a test starts would compile the package again
unexport PYTHONDONTWRITEBYTECODE
# what mypy knows of unchanged modules serves every clone
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vgpuscope/mypy

.PHONY: cluster-programs e2e-more e2e-soak environments site licences audit audit-worlds sbom dist release image sign outputs recording console check-types attack e2e e2e-breaks e2e-down help setup hooks fmt lint test test-fast programs coverage fuzz soak gen check-gen check golden demo bench pictures lock clean
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/dev.txt pyproject.toml
	@echo "vgpuscope: setting up $(VENV) (once, about a minute)"
	@python="$(PY)"; \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "vgpuscope needs Python 3.11 or newer; $$python is $$($$python -V). Say PY=python3.12 or so."; exit 1; }; \
	[ -x $(BIN)/python ] || $$python -m venv $(VENV)
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(BENCH_STAMP): requirements/bench.txt $(STAMP)
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bench.txt
	@touch $@

$(CONSOLE): $(STAMP) $(CONSOLE_SOURCES)
	@echo "vgpuscope: building the web console"
	@tools/console/run build

console: $(CONSOLE)  ## build the web console into the package

setup: environments  ## virtual environments with locked dependencies

environments: $(STAMP)
	@$(BIN)/python -m tools.testing.environments $(IMAGE_PYTHON) $(LOWEST_PYTHON)

hooks: $(STAMP)  ## run the linters before each commit (Git hook of pre-commit)
	$(BIN)/pre-commit install

fmt: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(STAMP)  ## ruff, mypy, import contracts, Dockerfile, chart, workflows; the console's types and style
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	tools/console/run check
	@tools/helm/lint
	@tools/actionlint/lint

licences: $(STAMP)  ## fail if the image would ship a licence that pyproject.toml does not allow
	@$(BIN)/python -m tools.licences

audit: $(STAMP)  ## known vulnerabilities of what the image ships; needs the public databases
	@tools/audit

sbom: $(STAMP)  ## bill of materials from the lock files: dist/vgpuscope.cdx.json
	@$(BIN)/python -m tools.sbom dist/vgpuscope.cdx.json

dist: $(STAMP) $(CONSOLE)  ## wheel, sdist, chart, bill of materials, provenance and checksums in dist/; the same commit gives the same bytes
	@rm -rf dist
	@$(BIN)/python -m tools.release artifacts

# IMAGE, PYTHON_IMAGE and NODE_IMAGE reach it by the environment
release: $(STAMP) $(CONSOLE)  ## all of a release up to the push (RELEASING.md); DRY_RUN=1 tries it in seconds and changes nothing
	@$(BIN)/python -m tools.release $(if $(DRY_RUN),--dry-run)

image:  ## build and push IMAGE=HOST/NAME:TAG with PYTHON_IMAGE and NODE_IMAGE by digest; with provenance and a bill of materials
	@tools/image "$(IMAGE)" "$(PYTHON_IMAGE)" "$(NODE_IMAGE)"

sign:  ## sign that image by its digest, the checksums and the provenance of dist/; needs cosign
	@tools/image sign

# what a real cluster on this machine is made of
cluster-programs: $(STAMP)
	@$(BIN)/python -m tools.cluster check
	@$(MAKE) --no-print-directory --silent console
	@tools/need cc gcc
	@tools/need jq jq
	@tools/need containerd containerd
	@tools/need runc runc
	@tools/need /usr/lib/cni/bridge containernetworking-plugins
	@tools/need conntrack conntrack
	@tools/need iptables iptables
	@tools/need debootstrap debootstrap
	@tools/need busybox busybox-static
	@tools/controlplane/build >/dev/null
	@tools/helm/build >/dev/null
	@tools/cluster/build >/dev/null

e2e: cluster-programs  ## a real one-node Kubernetes with the chart in it, and its tests; needs root. KEEP=1 leaves it up
	@KEEP=$(KEEP) $(BIN)/python -m tools.cluster $(ONLY)

e2e-breaks: cluster-programs  ## break the product in a dozen places: each time a test of `make e2e` must fail. BREAKS=wrong-mount for one
	@$(BIN)/python -m tests.e2e.breaks $(BREAKS)

e2e-more: cluster-programs  ## further tests in that Kubernetes: reclaim, webhook, HAMi over and back, processes, verdicts
	@KEEP=$(KEEP) $(BIN)/python -m tools.cluster $(or $(ONLY),tests/e2e/more)

e2e-soak: cluster-programs  ## pods come and go in that Kubernetes for MINUTES=60, PODS=300, and nothing may be left of them
	@MINUTES=$(or $(MINUTES),60) PODS=$(or $(PODS),300) SEED=$(SEED) $(BIN)/python -m tools.cluster tests/e2e/more/soak.py

e2e-down: $(STAMP)  ## end the cluster that `make e2e KEEP=1` left
	@$(BIN)/python -m tools.cluster down

outputs: $(STAMP) $(CONSOLE)  ## write the outputs in the documentation again, from the demo
	$(BIN)/python -m tools.doc_outputs

recording: $(STAMP) $(CONSOLE)  ## record the demo again: docs/img/demo.cast and docs/img/demo.svg
	$(BIN)/python -m tools.recording

programs: $(STAMP)
	@tools/need cc gcc
	@tools/need promtool prometheus
	@tools/need prometheus-alertmanager prometheus-alertmanager
	@tools/need victoria-metrics victoria-metrics
	@tools/need '/usr/lib/postgresql/*/bin/initdb' postgresql
	@tools/need zsh zsh
	@tools/need fish fish
	@tools/need curl curl
	@tools/need jq jq
	@tools/need chromium-headless-shell chromium-headless-shell
	@tools/controlplane/build >/dev/null
	@tools/helm/build >/dev/null
	@tools/clients/build >/dev/null

test: programs $(CONSOLE)  ## everything that proves the product, but for the long soaks; installs what it needs
	tools/console/run test
	@$(BIN)/python -m tools.testing.run --all $(IMAGE_PYTHON) --part $(LOWEST_PYTHON) -n $(WORKERS)

test-fast: $(STAMP)  ## what needs no other program, no demo and no build; a few minutes
	HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n 2 --dist worksteal -m "not real and not soak and not whole" -q

coverage: programs $(CONSOLE)  ## `make test` with branch coverage; fails below fail_under in pyproject.toml
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -p tools.testing.alone --again -n $(WORKERS) --dist loadgroup -m "not long"
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

fuzz: $(STAMP)  ## 2,000 examples of each property instead of 40
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n 2 --dist worksteal -m "hypothesis and not real" -q

attack: programs  ## what strangers could try, as tests; ATTACK_SECONDS=60 lets each fuzz test run for about that long
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m attack -q

audit-worlds: $(STAMP) $(CONSOLE)  ## the auditor on 200 random fleets (WORLDS=n), and all pages at all ranges in a browser
	AUDIT_WORLDS=$(or $(WORLDS),200) AUDIT_DOM=all $(BIN)/python -m pytest -n 2 --dist loadgroup tests/audit -q

soak: programs  ## the long tests: 20,000 accelerated cycles of churn, a day of pods, 1,000 nodes
	$(BIN)/python -m pytest -m "soak or long" -s

gen: $(STAMP)  ## write all generated files
	@tools/helm/build >/dev/null
	$(BIN)/python -m tools.gen
	tools/console/run types

check-gen: $(STAMP) check-types  ## fail if a generated file is not current
	@tools/helm/build >/dev/null
	$(BIN)/python -m tools.gen --check

check-types: $(STAMP)
	@tools/console/run types /tmp/vgpuscope-types.gen.ts && { [ ! -e /tmp/vgpuscope-types.gen.ts ] || cmp -s /tmp/vgpuscope-types.gen.ts web/src/api/types.gen.ts || { echo "gen: web/src/api/types.gen.ts is not current: run make gen"; exit 1; }; }

check: lint check-gen licences test  ## what CI runs

golden: $(STAMP)  ## rewrite the golden files; read the diff
	VGPUSCOPE_GOLDEN=write $(BIN)/python -m pytest -q tests/services/agent/test_golden.py tests/views/node/top/test_top.py tests/views/test_screens.py; git diff --stat -- tests

# CLUSTER=1: in a real one-node Kubernetes on this machine
demo: $(if $(CLUSTER),cluster-programs,$(STAMP) $(CONSOLE))  ## simulated GPU nodes, real agents; no GPU or cluster needed. CLUSTER=1: a real Kubernetes; needs root
	@exec $(if $(CLUSTER),$(BIN)/python -m tools.cluster demo,$(BIN)/vgpuscope demo)

bench: $(BENCH_STAMP) $(CONSOLE)  ## measure against peers and lower bounds; BENCH=agent, cluster, analyzer, console, trust, reclaim or scheduler for one
	@tools/need cc gcc
	@tools/need promtool prometheus
	@tools/need victoria-metrics victoria-metrics
	@tools/need chromium chromium
	@tools/controlplane/build >/dev/null
	$(BIN)/python -m bench $(BENCH)

pictures: $(STAMP) $(CONSOLE)  ## draw the pictures of the documentation again, from the demo
	@tools/need chromium-headless-shell chromium-headless-shell
	@tools/need '/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc' fonts-wqy-zenhei
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.console_pictures

site: $(STAMP)  ## the documentation as a site in build/site; fails if a link leads nowhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "vgpuscope: build/site is ready; to read it: $(BIN)/python -m http.server -d build/site 8000"

lock: $(STAMP)  ## resolve the dependencies again and write the lock files
	@$(BIN)/python -m pip install --no-compile --quiet uv && tools/lock

clean:  ## remove what was installed and built here
	rm -rf $(VENV) web/node_modules src/vgpuscope/http/assets/console build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
