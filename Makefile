# Every command an engineer types. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

LAB ?= zone-small
NODE ?=
DRILL ?= link-flap
NOW := $(shell date -u +%Y%m%dT%H%M%SZ)
VM_KERNEL ?= linux-image-amd64
SYSTEMS ?= debian-12 debian-13
RUN ?= drill test readme package sudo
FRR ?=
DRILLS ?=
OUT ?= results/drills-$(NOW)
AGAINST ?=
COUNT ?= 20000
SEED ?= 1
MACHINES ?= $(HOME)/.cache/rocelab/machines

READY := .venv/.ready
READY_TO_TEST := .venv/.ready-to-test
READY_FOR_DOCS := .venv/.ready-for-docs
# What drills of programs need, and the drill of each.
OPTIONAL := torch:torch-ddp-flap mpi:mpi-flap iperf:iperf-flap
READY_FOR = $(foreach pair,$(OPTIONAL),$(if $(filter $(lastword $(subst :, ,$(pair))),$(1)),.venv/.ready-for-$(firstword $(subst :, ,$(pair)))))
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
AS_ROOT := $(if $(SUDO),$(SUDO) env PYTHONDONTWRITEBYTECODE=1)
# Commands, and processes that they start, need not be compiled anew each time.
export PYTHONDONTWRITEBYTECODE :=
ROCELAB := $(AS_ROOT) "$(CURDIR)/.venv/bin/rocelab"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  LAB=$(LAB) DRILL=$(DRILL): a name of the catalog or the path of a YAML file"

.PHONY: setup
setup: $(READY) ## install what is missing and make .venv; the others do it when needed

$(READY): pyproject.toml Makefile setup.sh
	@./setup.sh
	@touch $@

$(READY_TO_TEST): pyproject.toml Makefile setup.sh
	@./setup.sh test
	@touch $(READY) $@

$(READY_FOR_DOCS): pyproject.toml Makefile setup.sh
	@./setup.sh docs
	@touch $(READY) $@

.venv/.ready-for-torch .venv/.ready-for-mpi .venv/.ready-for-iperf: .venv/.ready-for-%: pyproject.toml Makefile setup.sh
	@./setup.sh $*
	@touch $(READY) $@

.PHONY: doctor
doctor: $(READY) ## say of each thing a lab needs whether it is there
	@$(ROCELAB) doctor

.PHONY: lab-up
lab-up: $(READY) ## bring up LAB=zone-small
	@$(ROCELAB) up "$(LAB)"

.PHONY: live
live: $(READY) ## see LAB=zone-small in the browser, brought up if it is not: the page's URL, until Ctrl-C
	@$(ROCELAB) status "$(LAB)" >/dev/null 2>&1; [ $$? != 2 ] || $(ROCELAB) up "$(LAB)"
	@$(ROCELAB) live "$(LAB)"

.PHONY: lab-status
lab-status: $(READY) ## say how the lab is: sessions, routes, daemons
	@$(ROCELAB) status "$(LAB)"

.PHONY: lab-shell
lab-shell: $(READY) ## open a shell in NODE=rtsw1
	@test -n "$(NODE)" || { echo "lab-shell: say which node, for example NODE=rtsw1" >&2; exit 2; }
	@$(ROCELAB) shell "$(LAB)" "$(NODE)"

.PHONY: lab-down
lab-down: $(READY) ## take the lab down
	@$(ROCELAB) down "$(LAB)"

.PHONY: drill
drill: $(READY) $(call READY_FOR,$(DRILL)) ## run DRILL=link-flap: lab up, traffic, faults, lab down, what was lost
	@$(ROCELAB) drill run "$(DRILL)"

.PHONY: drills
drills: $(READY) $(call READY_FOR,$(or $(DRILLS),$(basename $(notdir $(wildcard scripts/*.yaml))))) ## run every drill that ships, or DRILLS="link-flap storm", one after the other; again with OUT=results/drills-TIME: those that have not passed
	@mkdir -p "$(OUT)"; failed=; missed=; for name in $(or $(DRILLS),$(basename $(notdir $(wildcard scripts/*.yaml)))); do \
		! grep -qxs "$$name" "$(OUT)/passed" || continue; \
		$(ROCELAB) drill run "$$name" --force --out "$(OUT)/$$name" --junit "$(OUT)/$$name/junit.xml"; \
		case $$? in 0) echo "$$name" >> "$(OUT)/passed" ;; 3) missed="$$missed $$name" ;; \
			130 | 143) exit 130 ;; *) failed="$$failed $$name" ;; esac; \
	done; \
	[ -z "$$missed" ] || echo "drills that this machine could not run or carry:$$missed" >&2; \
	[ -z "$$failed" ] || echo "drills that failed:$$failed" >&2; \
	[ -z "$$missed$$failed" ] || { echo "make drills OUT=$(OUT) runs these again" >&2; false; }

.PHONY: convergence-table
convergence-table: $(READY) ## how long FRR takes to converge, by fault, fabric and fan-out; over an hour, resumable; FRR=PREFIX beside this FRR
	$(AS_ROOT) .venv/bin/python -m bench.convergence $(if $(FRR),--frr "$(FRR)")

.PHONY: compare
compare: $(READY) ## every load-balancing scheme on zone-1-1, 1 to 32 queue pairs, one report
	@$(ROCELAB) compare zone-1-1 --qps 1,4,8,16,32 --size 4MB --iterations 2

.PHONY: simulate
simulate: $(READY) ## 32,256 GPUs in a ring: what ECMP and E-ECMP cost it, in seconds
	@.venv/bin/rocelab simulate meta-32k --pattern allreduce --ranks 32256 --size 16GB --qps 16 \
		--strategy split --scheme e-ecmp --placement topology-aware --out "results/simulate-$(NOW)"

.PHONY: agreement
agreement: $(READY) ## the simulator beside the lab on every lab that fits this machine: docs/agreement.md
	$(AS_ROOT) .venv/bin/python -m bench.agreement

.PHONY: validation
validation: $(READY) ## the simulator beside what Meta, Alibaba and others published: docs/validation.md
	.venv/bin/python -m bench.validation

.PHONY: test
test: $(READY_TO_TEST) ## lint, types, unit tests, then tests with real fabrics as root
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/lint-imports --no-logo --no-cache
	@tests/suite.sh "not long" $(AS_ROOT)

.PHONY: test-long
test-long: $(READY_TO_TEST) ## the tests that `make test` leaves out: more runtimes, sizes and signals, and pages' commands
	@tests/suite.sh long $(AS_ROOT)

.PHONY: docs
docs: $(READY_FOR_DOCS) ## the site of docs/, in site/: needs no network, fails on a broken link or anchor
	.venv/bin/python -m docs.generate
	rm -rf site
	.venv/bin/python -m docs.repository > .site.toml
	.venv/bin/zensical build --strict --clean --config-file .site.toml
	@rm -f .site.toml
	@! grep -roE '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//' --include='*.html' site | \
		grep -vE '<link rel="?(next|prev)"? ' || \
		{ echo "docs: these pages load something from elsewhere" >&2; exit 1; }

.PHONY: lock
lock: $(READY_TO_TEST) ## requirements-dev.txt: the versions that CI installs, in step with pyproject.toml
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[release]"
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		--output-file requirements-dev.txt pyproject.toml

.PHONY: recording
recording: $(READY) ## the session in docs/tour.md, anew: docs/session.cast and docs/session.svg
	$(AS_ROOT) .venv/bin/python -m docs.record

.PHONY: soak
soak: $(READY_TO_TEST) ## property tests with 300 examples, a hundred killed drills, a thousand flaps, hundreds of open pauses, ten deadlocks: nothing left, nothing grows
	.venv/bin/python -m pytest -n auto -m hypothesis --hypothesis-profile=thorough tests/unit
	$(AS_ROOT) .venv/bin/python -m pytest -p no:cacheprovider -o junit_family=xunit1 --junitxml=results/soak.xml tests/soak

.PHONY: fuzz
fuzz: $(READY_TO_TEST) ## COUNT=20000 damaged files and odd command lines, SEED=1: none ends with a traceback or without end
	@$(AS_ROOT) tests/alone.sh .venv/bin/python -m tests.fuzz.run --count "$(COUNT)" --seed "$(SEED)" --out results/fuzz

.PHONY: adversary
adversary: $(READY_TO_TEST) ## every drill on a machine that misbehaves, beside a capture: hours; DRILLS="link-flap" AGAINST="none steal"
	@mkdir -p results
	@$(SUDO) env PYTHONDONTWRITEBYTECODE=1 DRILLS="$(DRILLS)" AGAINST="$(AGAINST)" tests/alone.sh \
		.venv/bin/python -m pytest -v -p no:cacheprovider -o junit_family=xunit1 --junitxml=results/adversary.xml tests/adversary

.PHONY: test-containerlab
test-containerlab: $(READY_TO_TEST) ## containerlab itself: deploy what is rendered, adopt what others wrote; builds it with Go where it is missing
	@mkdir -p results
	@$(AS_ROOT) tests/containerlab/run.sh

.PHONY: test-kubernetes
test-kubernetes: $(READY_TO_TEST) ## clabernetes' manager on a Kubernetes API server: what it makes of rendered labs; builds both with Go
	@mkdir -p results
	@$(AS_ROOT) tests/kubernetes/run.sh

.PHONY: test-machines
test-machines: $(READY) ## both commands of README, and all others, on fresh machines: SYSTEMS="debian-12" RUN="drill test"
	@$(AS_ROOT) .venv/bin/python -m tests.machines.run --cache "$(MACHINES)" --systems "$(SYSTEMS)" --run "$(RUN)"

.PHONY: test-vm
test-vm: $(READY) ## `make drill` on SYSTEMS as virtual machines, the queue tests, and a lab without IPv6, on VM_KERNEL=linux-image-amd64
	@$(AS_ROOT) .venv/bin/python -m tests.machines.run --cache "$(MACHINES)" --systems "$(SYSTEMS)" --run vm
	.venv/bin/python -m tests.vm.run --package "$(VM_KERNEL)"
	.venv/bin/python -m tests.vm.run --package "$(VM_KERNEL)" --append ipv6.disable=1 -- bash tests/vm/no-ipv6.sh

.PHONY: bench
bench: $(READY) ## time and weigh three fabrics, beside plain FRR and Mininet
	$(AS_ROOT) .venv/bin/python -m bench

.PHONY: bench-endpoints
bench-endpoints: $(READY) ## packets per second of an agent, beside Scapy, UDP and C
	$(AS_ROOT) .venv/bin/python -m bench.endpoints

.PHONY: bench-live
bench-live: $(READY_TO_TEST) ## the page of `rocelab live`: 1,000 events a second in a browser, and what its server costs
	@$(AS_ROOT) tests/alone.sh .venv/bin/python -m bench.live_page

.PHONY: bench-containerlab
bench-containerlab: $(READY_TO_TEST) ## our runtime beside a plain `containerlab deploy`, and one drill on three runtimes: an hour
	@$(AS_ROOT) tests/containerlab/alone.sh .venv/bin/python -m tests.containerlab.with_engine \
		.venv/bin/python -m bench.containerlab

.PHONY: bench-simulator
bench-simulator: $(READY) ## the simulator's engine up to 131,072 GPUs, and beside SimGrid and ns-3
	.venv/bin/python -m bench simulator packet_engine links_engine links_collectives simgrid ns3

.PHONY: clean
clean: ## remove .venv and caches; labs, results and Debian packages stay
	$(SUDO) rm -rf "$(MACHINES)"/debian-*
	rm -rf .venv build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
