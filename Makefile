# `make help` lists the targets. They need Go, git and make, and build other tools from the pinned
# tool modules. `make check` names what can't be built, such as a container engine; tests that
# need it are skipped with a message.

SHELL := /bin/sh
GO ?= go
export CGO_ENABLED ?= 0
# Without paths in the binaries, all clones on a machine share Go's cache of builds and test results.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

BINARIES := nstance-server nstance-agent nstance-admin nstance-operator nstance-asg
DEV_BINARIES := dev dev-s3 dev-aws
VERSION := $(shell git describe --tags --match='v[0-9]*' --always --abbrev=12 --dirty 2>/dev/null || echo dev)
# The flags of .ko.yaml: a binary is the same in an image and in bin/ (docs/reproduce.md).
BUILDID := -buildid=
LDFLAGS = -s -w $(BUILDID) -X main.version=$(VERSION)
BUILD := $(GO) build -trimpath -buildvcs=false

BUF := $(GO) tool -modfile=.ci/tools/buf.mod buf
CONTROLLER_GEN := $(GO) tool -modfile=.ci/tools/controller-gen.mod controller-gen
KUSTOMIZE := $(GO) tool -modfile=.ci/tools/kustomize.mod kustomize
ACTIONLINT := $(GO) tool -modfile=.ci/tools/actionlint.mod actionlint
# The linter may be running in another clone on this machine.
LINTER := golangci-lint run --allow-parallel-runners
LINT := $(GO) tool -modfile=.ci/tools/golangci-lint.mod $(LINTER)

# The race detector needs a C compiler on most platforms. Without one the tests
# still run, and say what is missing.
CC_FOUND := $(shell command -v $$($(GO) env CC) 2>/dev/null)
ifneq ($(CC_FOUND),)
TEST = RAPID_SEED=$(FRESH_SEED) CGO_ENABLED=1 GOTEST=$(GOTEST) .ci/test -race
NESTED_TEST = CGO_ENABLED=1 $(GOTEST) -race -exec $(CURDIR)/bin/leaks
else
TEST = RAPID_SEED=$(FRESH_SEED) GOTEST=$(GOTEST) .ci/test
NESTED_TEST = $(GOTEST) -exec $(CURDIR)/bin/leaks
endif

# The browser in which the dashboard is tested.
CHROMIUM ?= $(shell for name in chromium chromium-browser google-chrome; do command -v $$name && break; done)

.DEFAULT_GOAL := help

##@ General

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^##@ / {printf "%s%s\n", sep, substr($$0, 5); sep = "\n"} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## Show what this machine has and lacks, and what works without it
	@.ci/check

##@ Build

.PHONY: build $(BINARIES)
build: $(addprefix bin/,$(BINARIES) $(DEV_BINARIES)) ## Build all programs into bin/
$(BINARIES): %: bin/%

# Go knows best what is out of date.
.PHONY: always
always:
bin/%: always
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

.PHONY: testplane
testplane: ## Build the Kubernetes control plane for tests, once (about 10 minutes, 600 MB in ~/.cache)
	@.ci/plane

# A separate module, since the product does not depend on these parts of Kubernetes.
.PHONY: dev-k8s
dev-k8s: ## Build bin/dev-k8s, a Kubernetes API server on files (to run, it needs testplane too)
	cd cmd/dev-k8s && $(BUILD) -ldflags '-s -w $(BUILDID)' -o ../../bin/dev-k8s .

##@ Development stack

# Kubernetes of the stack: its own API server, or any cluster.
KUBERNETES := --kubernetes $(if $(DEV_KUBECONFIG),--kubeconfig $(DEV_KUBECONFIG))

# The version is fixed, so that a change only rebuilds the programs that contain it.
ifdef WATCH
WATCHING := --watch 'make --no-print-directory build VERSION=$(VERSION) BUILDID='
endif

# With its build id Go can tell that a program is up to date, and does not link it again.
dev dev-server dev-up dev-operator: BUILDID :=

.PHONY: dev dev-server
dev: build ## Run the development stack with Kubernetes in the foreground; Ctrl-C stops it (DEV_KUBECONFIG=file: use that cluster)
	bin/dev run $(KUBERNETES) $(WATCHING)
dev-server: build ## Run the development stack without Kubernetes (WATCH=1, with all dev targets: rebuild and restart what changes)
	bin/dev run $(WATCHING)

.PHONY: dev-up dev-down dev-status dev-logs dev-operator clean-dev
dev-up: build ## Start the stack in the background, and wait until its groups are at size (K8S=1: with Kubernetes)
	bin/dev up $(if $(K8S),$(KUBERNETES)) $(WATCHING)
dev-logs: ## Follow the log of a component (NAME=component; NAME=agents: of all agents)
	tail -n 100 -F temp/logs/$(or $(NAME),dev).log
dev-operator: build ## Run only the operator in the foreground, instead of that of a running stack with Kubernetes
	bin/dev foreground operator $(KUBERNETES) $(WATCHING)
dev-down: ## Stop the stack and all its processes
	@if [ -x bin/dev ]; then bin/dev down; else echo "bin/dev is not built: nothing was started from here"; fi
dev-status: ## Show which components of the stack run
	@if [ -x bin/dev ]; then bin/dev status; else echo "bin/dev is not built: nothing was started from here"; fi
clean-dev: dev-down ## Stop the stack, and delete its state and logs
	rm -rf temp

##@ Development

.PHONY: quick
quick: ## Test the changed packages, then the others, without simulation and race detector
	@.ci/quick

.PHONY: deflake
deflake: ## Repeat the tests of PKG until one fails (RUN=pattern, TIMES=limit, LOAD=busy processes per core; ALL=1: all packages, LOAD=2)
	@$(if $(ALL),.ci/plane >/dev/null && PLANE=1) $(GO) run ./integration/deflake $(if $(RUN),-run '$(RUN)') $(if $(TIMES),-times $(TIMES)) \
		$(if $(or $(LOAD),$(ALL)),-load $(or $(LOAD),2)) $(if $(ALL),./...,$(PKG))

.PHONY: cover
cover: ## Show the test coverage of each package and in total (temp/cover.txt)
	@.ci/cover

.PHONY: lines
lines: ## Count the lines of product code, without blank lines, comments, tests, simulation, benchmark and generated code
	@.ci/product | xargs cat | grep -cvE '^[[:space:]]*(//|$$)'

# Replaces package time by one whose wall clock a test can move. It is one for the whole process.
STEPCLOCK = -tags stepclock -overlay $$(mkdir -p bin/stepclock && $(GO) run ./integration/ci/stepclock bin/stepclock)

.PHONY: sim
sim: ## Simulate SEEDS histories of a shard (default 500), or replay SEED with its timeline (LENGTH=10m, LOGS=1; CLOCK=1: the wall clock is moved)
	@$(GO) test -c $(if $(CLOCK),$(STEPCLOCK)) -o bin/shardtest ./pkg/shardtest
	@cd pkg/shardtest && $(if $(CLOCK),GOMAXPROCS=1) GOGC=400 ../../bin/shardtest -test.run '^TestSimulation$$' -test.timeout 0 -sim.length=$(or $(LENGTH),10m) $(if $(LOGS),-sim.logs) \
		$(if $(SEED),-sim.seed=$(SEED),-sim.seeds=$(or $(SEEDS),500) -sim.first=$(or $(FIRST),1) -sim.figure)

.PHONY: fuzz
fuzz: ## Fuzz each parser for FUZZTIME (default 10s)
	@.ci/fuzz $(or $(FUZZTIME),10s)

.PHONY: bench
bench: build ## Measure all figures of the benchmark
	$(GO) run ./integration/bench $(BENCH)

##@ Generated files

.PHONY: generate
generate: ## Generate the code from proto/
	$(BUF) generate

.PHONY: manifests
manifests: ## Generate the CRDs, the operator's roles, and their copies for clusterctl and the chart
	$(CONTROLLER_GEN) object paths=./pkg/api/...
	$(CONTROLLER_GEN) crd:crdVersions=v1 paths=./pkg/api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=nstance-operator paths=./pkg/operator/... output:rbac:dir=config/rbac
	$(KUSTOMIZE) build config/default -o config/clusterctl/infrastructure-components.yaml
	$(KUSTOMIZE) build config/crd -o charts/nstance-operator/files/crds.yaml
	cp config/rbac/role.yaml config/rbac/workload.yaml config/rbac/pods.yaml charts/nstance-operator/files/

.PHONY: nix-hashes
nix-hashes: ## Compute the hashes of the flake's downloads (does not need Nix)
	$(GO) run ./nix/hashes

.PHONY: terraform-tables
terraform-tables: ## Write the tables of inputs and outputs in the Terraform modules' READMEs
	@cd integration/terraform && $(GO) run ./tables

.PHONY: chart-table
chart-table: ## Write the table of values in the chart's README
	@$(GO) run ./charts/tables

.PHONY: metrics-tables
metrics-tables: ## Write the tables of metrics in docs/monitoring.md
	@$(GO) run ./monitoring/tables

##@ Checks

.PHONY: ci ci-all
ci: ## Run what every change has to pass, about 10 minutes (FROM=step: start there; ONLY=step,step: only these)
	@$(GO) run ./integration/ci $(if $(FROM),-from $(FROM)) $(if $(ONLY),-only $(ONLY))
ci-all: ## Run everything that can be checked, which takes hours (FROM, ONLY: as with make ci)
	@$(GO) run ./integration/ci -all $(if $(FROM),-from $(FROM)) $(if $(ONLY),-only $(ONLY))

# Without a control plane, its tests are skipped; with one, they fail where they would be skipped.
PLANE_BUILT = $(if $(filter 0,$(PLANE)),0,$(shell .ci/plane -n >/dev/null 2>&1 && echo 1 || echo 0))

# Runs a test that failed again, alone: what passes then depends on chance, and is named.
GOTEST := $(CURDIR)/bin/gotest
bin/gotest: always
	@$(BUILD) -o $@ ./integration/ci/gotest
bin/leaks: always
	@$(BUILD) -o $@ ./pkg/leaktest/leaks

# In the simulation nothing is run again, so it is run by itself.
.PHONY: test
test: bin/gotest bin/leaks ## Run the tests that need no container engine, and simulate 200 histories (after testplane with a control plane; PLANE=0: without; MODULES=0: only the main module)
	@$(if $(filter 0,$(PLANE_BUILT)),echo "SKIPPED: tests on a Kubernetes control plane: make testplane builds one" >&2)
	@ENGINE=0 PLANE=$(PLANE_BUILT) GOTEST=$(GOTEST) .ci/test -timeout 20m -skip '^TestSimulation$$' ./...
	@echo "simulating 200 histories of a shard"
	@$(MAKE) --no-print-directory sim SEEDS=200
	@$(if $(filter 0,$(MODULES)),,$(MAKE) --no-print-directory test-modules)

# Go keeps no results of tests that another program runs, so ci runs these only when they change.
.PHONY: test-modules
test-modules: bin/gotest bin/leaks ## Run the part of test that is in modules of their own
	@echo "testing dev-k8s, a module of its own"
	@cd cmd/dev-k8s && PLANE=$(PLANE_BUILT) $(GOTEST) -exec $(CURDIR)/bin/leaks -timeout 10m ./...
	@echo "testing what checks the Terraform modules, a module of its own"
	@cd integration/terraform && $(GOTEST) -exec $(CURDIR)/bin/leaks -timeout 10m ./...
	@echo "testing the alerts with Prometheus' engine, a module of its own"
	@cd integration/monitoring && $(GOTEST) -timeout 10m ./...

# The seed of property tests, and the first of histories, that were not drawn before.
FRESH_SEED := $(shell date +%y%m%d%H%M)0000

.PHONY: test-race
test-race: bin/gotest bin/leaks ## Run all tests with the race detector, with containers if an engine is available, and simulate 2,000 new histories (PLANE=0: no Kubernetes)
ifeq ($(CC_FOUND),)
	@echo "no C compiler: running the tests WITHOUT the race detector" >&2
endif
ifeq ($(PLANE),0)
	@echo "SKIPPED: tests on a Kubernetes control plane: PLANE=0" >&2
	@$(TEST) -timeout 20m -skip '^TestSimulation$$' ./...
	@echo "testing dev-k8s, a module of its own"
	@cd cmd/dev-k8s && PLANE=0 $(NESTED_TEST) -timeout 10m ./...
else
	@.ci/plane >/dev/null
	@PLANE=1 $(TEST) -timeout 20m -skip '^TestSimulation$$' ./...
	@echo "testing dev-k8s, a module of its own"
	@cd cmd/dev-k8s && PLANE=1 $(NESTED_TEST) -timeout 10m ./...
endif
	@echo "testing what checks the Terraform modules, a module of its own"
	@cd integration/terraform && $(NESTED_TEST) -timeout 10m ./...
	@echo "testing the alerts with Prometheus' engine, a module of its own"
	@cd integration/monitoring && $(GOTEST) -timeout 10m ./...
	@echo "testing large shards, without the race detector"
	@$(GO) test -timeout 10m -run '^TestLarge' ./pkg/server/reconcile
	@echo "simulating 2,000 histories of a shard, from seed $(FRESH_SEED) on"
	@$(MAKE) --no-print-directory sim SEEDS=2000 FIRST=$(FRESH_SEED)
	@echo "moving the wall clock, without the race detector: tests, and 200 histories"
	@$(GO) test $(STEPCLOCK) -timeout 10m -run '^TestClockSteps' ./pkg/server
	@$(MAKE) --no-print-directory sim SEEDS=200 FIRST=$(FRESH_SEED) CLOCK=1

.PHONY: verify
verify: generate manifests ## Generate, tidy and format everything, and fail if that changes a file
	@.ci/proto
	$(GO) mod tidy
	cd cmd/dev-k8s && $(GO) mod tidy
	cd integration/terraform && $(GO) mod tidy
	cd integration/monitoring && $(GO) mod tidy
	cd integration/dashboard && $(GO) mod tidy
	$(GO) run ./terraform/policies
	@$(MAKE) --no-print-directory nix-hashes terraform-tables chart-table metrics-tables
	gofmt -w $$(git ls-files '*.go' | grep -v '\.pb\.go$$')
	@.ci/clean-tree

.PHONY: lint
lint: ## Run go vet and golangci-lint, and actionlint on the workflows
	$(GO) vet -tags integration ./...
	$(LINT) --build-tags integration ./...
	cd cmd/dev-k8s && $(GO) vet ./... && $(GO) tool -modfile=../../.ci/tools/golangci-lint.mod $(LINTER) ./...
	cd integration/terraform && $(GO) vet -tags integration ./... && \
		$(GO) tool -modfile=../../.ci/tools/golangci-lint.mod $(LINTER) --build-tags integration ./...
	cd integration/monitoring && $(GO) vet ./... && $(GO) tool -modfile=../../.ci/tools/golangci-lint.mod $(LINTER) ./...
	cd integration/dashboard && $(GO) vet ./... && $(GO) tool -modfile=../../.ci/tools/golangci-lint.mod $(LINTER) ./...
	$(ACTIONLINT)

.PHONY: vulncheck
vulncheck: ## Check for known vulnerabilities, if the database can be reached
	@.ci/vulncheck

##@ Tests with more requirements

# With BUILT=1 nothing is built again, so concurrent targets don't replace what another one runs.
# Everything is downloaded before, since some of them have no network.
STORIES := mainjob aws operator
.PHONY: gate-built e2e-built downloads
gate-built: build bin/gotest testplane dev-k8s downloads ## Build what the tests and stories of ci run (BUILT=1 then skips their builds)
	@for tool in helm helm3; do $(GO) tool -n -modfile=.ci/tools/$$tool.mod helm >/dev/null || exit 1; done
	$(GO) test -tags integration -run '^$$' ./integration/mainjob ./integration/operator >/dev/null
e2e-built: gate-built bin/clusterctl ## Build what the stories of ci-all run
	$(GO) test -tags integration -run '^$$' $(addprefix ./integration/,$(STORIES)) >/dev/null

# The modules of tests that run without a network, and the tools that they and stories build.
TOOLS_DOWNLOADED := helm helm3 gotestsum
downloads: ## Download what is built without a network
	@for dir in . cmd/dev-k8s integration/terraform integration/monitoring; do (cd $$dir && $(GO) mod download) || exit 1; done
	@for tool in $(TOOLS_DOWNLOADED); do $(GO) list -deps -modfile=.ci/tools/$$tool.mod tool >/dev/null || exit 1; done

.PHONY: downloads-check
downloads-check: ## Check that what is built without a network was downloaded before, from an empty module cache on
	$(GO) test -tags integration -count=1 -timeout 10m -run '^TestDownloads$$' -v ./integration/ci

.PHONY: e2e-gate e2e-operator-gate
e2e-gate: $(if $(BUILT),,build bin/gotest) ## Run the end-to-end tests of the main job that every change has to pass
	$(GOTEST) -tags integration -count=1 -timeout 15m -run '^(TestGate|TestBadInput|TestConfig)$$' -v ./integration/mainjob
e2e-operator-gate: $(if $(BUILT),,build bin/gotest testplane dev-k8s) ## Run the operator's end-to-end test that every change has to pass
	PLANE=1 $(GOTEST) -tags integration -count=1 -timeout 15m -run '^TestGate$$' -v ./integration/operator

.PHONY: e2e
e2e: $(if $(BUILT),,build bin/gotest) ## Run the end-to-end tests of the main job with real processes, and containers if an engine is available
	$(GOTEST) -tags integration -count=1 -timeout 40m -parallel 6 -v ./integration/mainjob

.PHONY: e2e-aws
e2e-aws: $(if $(BUILT),,build bin/gotest) ## Run the end-to-end tests of a shard on AWS, with real processes and a stand-in for AWS
	$(GOTEST) -tags integration -count=1 -timeout 20m -v ./integration/aws

# One of the operator's stories moves a tenant between management clusters with it.
bin/clusterctl: .ci/tools/clusterctl.mod .ci/tools/clusterctl.sum
	$(GO) build -modfile=.ci/tools/clusterctl.mod -trimpath -ldflags '-s -w' -o $@ sigs.k8s.io/cluster-api/cmd/clusterctl

.PHONY: e2e-operator
e2e-operator: $(if $(BUILT),,build bin/gotest testplane dev-k8s bin/clusterctl) ## Run the operator's end-to-end tests on a Kubernetes control plane with Cluster API's core
	PLANE=1 $(GOTEST) -tags integration -count=1 -timeout 40m -v ./integration/operator

# What only root can run is skipped elsewhere.
AS_ROOT := $(if $(filter-out 0,$(shell id -u)),sudo)
.PHONY: test-root
test-root: ## Run the tests of agents with users of their own (user_range) as root, by sudo if this user is not root
	@$(GO) test -c -o bin/process.test ./pkg/provider/process
	@cd pkg/provider/process && $(AS_ROOT) env NEEDS_ROOT=1 ../../../bin/process.test -test.timeout 5m -test.v

.PHONY: dashboard-check
dashboard-check: ## Test the dashboard in Chromium (CHROMIUM=path), if there is one
ifeq ($(CHROMIUM),)
	@echo "SKIPPED: the dashboard in a browser: there is no chromium (Debian: apt-get install chromium; CHROMIUM=path)" >&2
	@cd integration/dashboard && $(GO) vet ./...
else
	@cd integration/dashboard && CHROMIUM=$(CHROMIUM) $(GO) test -timeout 10m ./...
endif

.PHONY: chart-check
chart-check: $(if $(BUILT),,bin/gotest testplane) ## Lint the operator's chart, compare what it renders, and install it on a real API server
	PLANE=1 $(GOTEST) -tags integration -count=1 -timeout 10m -v ./integration/chart

.PHONY: e2e-images
e2e-images: ## Check that images are built reproducibly, and that their signatures withstand attacks
	$(GO) test -tags integration -count=1 -timeout 40m -v ./integration/images

.PHONY: nix-check
nix-check: ## Evaluate, build and test the flake, with the installed Nix and a stub of nixpkgs
	@.ci/nix $(GO) test -tags integration -count=1 -timeout 30m -v ./integration/nix

.PHONY: terraform-check
terraform-check: ## Lint, test and apply the Terraform modules with a stub of the AWS provider (TERRAFORM=0, TOFU=0: without it; RUN=pattern)
	@.ci/terraform $(GO) test -C integration/terraform -tags integration -count=1 -timeout 30m $(if $(RUN),-run '$(RUN)') -v .

# Stand-ins for images that may not be available from a registry, by the names of their recipes in
# .ci/stand-ins. If NAME_IMAGE is set, that image is used instead.
STAND_INS := $(notdir $(wildcard .ci/stand-ins/*))
.PHONY: integration-images integration
integration-images: ## Build stand-ins for third-party images, once (MINIO_IMAGE=, VERSITYGW_IMAGE=, K3S_IMAGE=: use real images)
	@for name in $(STAND_INS); do \
		named=$$(printenv "$$(echo $$name | tr a-z A-Z)_IMAGE") || named=; \
		if [ -n "$$named" ]; then echo "$$name is $$named"; continue; fi; \
		.ci/stand-in $$name || { code=$$?; [ $$code = 3 ] || exit $$code; echo "SKIPPED: the stand-in for $$name" >&2; }; \
	done

# The stories on a container engine run one after another, since they measure.
CONTAINER_STORIES := containers storage failover cluster
integration: $(if $(filter 0,$(ENGINE)),,integration-images) ## Run the end-to-end tests on a container engine (ENGINE=1: fail without one; ENGINE=0: skip)
	$(if $(filter 0,$(ENGINE)),,$(GO) test -count=1 -v -run '^(TestPullByDigest|TestVerifyKey)$$' ./pkg/provider/docker)
	PLANE=$(or $(PLANE),1) $(GO) test -tags integration -count=1 -timeout 30m -p 1 -v $(addprefix ./integration/,$(CONTAINER_STORIES))

##@ Release

# Images are independent of this machine's settings, and are packed by the same version of Go that
# compiles the programs in them (docs/container-images.md).
IMAGES := GOTOOLCHAIN=$(shell sed -n 's/.*GOTOOLCHAIN=//p' .ko.yaml) $(GO) run ./images
RELEASE := $(if $(RELEASE_TAG),--tag=$(RELEASE_TAG)) $(if $(PROGRAMS),--programs=$(PROGRAMS))

SIGNER := $(if $(KEY),--key=$(KEY)) $(if $(KEYLESS),--keyless)
TRUST := $(if $(PUBLIC_KEY),--public-key=$(PUBLIC_KEY)) $(if $(IDENTITY),--identity='$(IDENTITY)') $(if $(ISSUER),--issuer=$(ISSUER))

.PHONY: images sign-images verify-images serve-images
images: ## Build the container images, without an engine (IMAGE_REPO=: push them there; PROGRAMS=: only these)
	$(IMAGES) build $(RELEASE) $(if $(IMAGE_REPO),--repository=$(IMAGE_REPO))
sign-images: ## Sign the images and their SBOMs (KEY=: a file or a KMS reference; KEYLESS=1)
	$(IMAGES) sign $(SIGNER)
verify-images: ## Verify the signatures of the images (PUBLIC_KEY=, or IDENTITY= and ISSUER=)
	$(IMAGES) verify $(TRUST)

serve-images: ## Serve the registry with the images to a container engine, until interrupted
	$(IMAGES) serve

.PHONY: dist chart push-chart check-base
dist: ## Build the archives in temp/dist, sign and verify them (WITH=files: sign these too)
	$(IMAGES) dist $(RELEASE) $(SIGNER) $(TRUST) $(addprefix --with=,$(WITH))
chart: ## Package the operator's chart with its built image, and the files for clusterctl, in temp/chart
	$(IMAGES) chart $(if $(RELEASE_TAG),--tag=$(RELEASE_TAG))
push-chart: ## Push the chart to CHART_REPO, sign and verify it
	$(IMAGES) chart $(if $(RELEASE_TAG),--tag=$(RELEASE_TAG)) --repository=$(or $(CHART_REPO),127.0.0.1:5017/charts) $(SIGNER) $(TRUST)
check-base: ## Check that the base image pinned in .ko.yaml is the newest of its name
	$(IMAGES) base
