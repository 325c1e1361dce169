# Everything this repository can do for you. `make help` lists the targets.
# Needed: Go, git and make. Whatever else a target uses, it builds itself from
# the pinned tool modules; what can't be built (a container engine) is named by
# `make check`, and skipped loudly.

SHELL := /bin/sh
GO ?= go
export CGO_ENABLED ?= 0
# What is built in one clone is found in Go's cache by another, and tests that passed there
# on the same code and files are not run again.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

BINARIES := nstance-server nstance-agent nstance-admin nstance-operator nstance-asg
DEV_BINARIES := dev dev-s3 dev-aws
VERSION := $(shell git describe --tags --match='v[0-9]*' --always --abbrev=12 --dirty 2>/dev/null || echo dev)
# The flags of .ko.yaml: a binary is the same in an image and in bin/ (docs/reproduce.md).
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION)
BUILD := $(GO) build -trimpath -buildvcs=false

BUF := $(GO) tool -modfile=.ci/tools/buf.mod buf
CONTROLLER_GEN := $(GO) tool -modfile=.ci/tools/controller-gen.mod controller-gen
KUSTOMIZE := $(GO) tool -modfile=.ci/tools/kustomize.mod kustomize
ACTIONLINT := $(GO) tool -modfile=.ci/tools/actionlint.mod actionlint
# Somebody may be linting another clone on this machine.
LINTER := golangci-lint run --allow-parallel-runners
LINT := $(GO) tool -modfile=.ci/tools/golangci-lint.mod $(LINTER)

# The race detector needs a C compiler on most platforms. Without one the tests
# still run, and say what is missing.
CC_FOUND := $(shell command -v $$($(GO) env CC) 2>/dev/null)
ifneq ($(CC_FOUND),)
TEST := CGO_ENABLED=1 .ci/test -race
NESTED_TEST := CGO_ENABLED=1 $(GO) test -race -exec $(CURDIR)/bin/leaks
else
TEST := .ci/test
NESTED_TEST := $(GO) test -exec $(CURDIR)/bin/leaks
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## Say what this machine lacks, and what that costs
	@.ci/check

.PHONY: build $(BINARIES)
build: $(addprefix bin/,$(BINARIES) $(DEV_BINARIES)) ## Build every binary into bin/
$(BINARIES): %: bin/%

# A module of its own: what it needs of Kubernetes is not the product's.
.PHONY: dev-k8s
dev-k8s: ## Build bin/dev-k8s, a Kubernetes API server on files (it needs make testplane too)
	cd cmd/dev-k8s && $(BUILD) -ldflags '-s -w -buildid=' -o ../../bin/dev-k8s .

# Go knows best what is out of date.
.PHONY: always
always:
bin/%: always
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

.PHONY: quick
quick: ## Run the tests without simulation and race detector, the packages that you changed first
	@.ci/quick

# Not built, these tests are skipped; built, they fail where they would be.
PLANE_BUILT = $(if $(filter 0,$(PLANE)),0,$(shell .ci/plane -n >/dev/null 2>&1 && echo 1 || echo 0))

.PHONY: test
test: ## Run the tests that need no container engine, and simulate 200 histories (after make testplane with a Kubernetes control plane; PLANE=0: without)
	@$(BUILD) -o bin/leaks ./pkg/leaktest/leaks
	@$(if $(filter 0,$(PLANE_BUILT)),echo "SKIPPED: tests on a Kubernetes control plane: make testplane builds one" >&2)
	@ENGINE=0 PLANE=$(PLANE_BUILT) .ci/test -timeout 20m ./...
	@echo "testing dev-k8s, a module of its own"
	@cd cmd/dev-k8s && PLANE=$(PLANE_BUILT) $(GO) test -exec $(CURDIR)/bin/leaks -timeout 10m ./...
	@echo "testing what checks the Terraform modules, a module of its own"
	@cd integration/terraform && $(GO) test -exec $(CURDIR)/bin/leaks -timeout 10m ./...
	@echo "simulating 200 histories of a shard"
	@$(MAKE) --no-print-directory sim SEEDS=200

# Other histories each time.
FRESH_SEED := $(shell date +%y%m%d%H%M)0000

.PHONY: test-race
test-race: ## Run all tests with the race detector, where an engine answers on containers too, and simulate 2,000 new histories (PLANE=0: no Kubernetes)
ifeq ($(CC_FOUND),)
	@echo "no C compiler: running the tests WITHOUT the race detector" >&2
endif
	@$(BUILD) -o bin/leaks ./pkg/leaktest/leaks
ifeq ($(PLANE),0)
	@echo "SKIPPED: tests on a Kubernetes control plane: PLANE=0" >&2
	@$(TEST) -timeout 20m ./...
	@echo "testing dev-k8s, a module of its own"
	@cd cmd/dev-k8s && PLANE=0 $(NESTED_TEST) -timeout 10m ./...
else
	@.ci/plane >/dev/null
	@PLANE=1 $(TEST) -timeout 20m ./...
	@echo "testing dev-k8s, a module of its own"
	@cd cmd/dev-k8s && PLANE=1 $(NESTED_TEST) -timeout 10m ./...
endif
	@echo "testing what checks the Terraform modules, a module of its own"
	@cd integration/terraform && $(NESTED_TEST) -timeout 10m ./...
	@echo "testing large shards, without the race detector"
	@$(GO) test -timeout 10m -run '^TestLarge' ./pkg/server/reconcile
	@echo "simulating 2,000 histories of a shard, from seed $(FRESH_SEED) on"
	@$(MAKE) --no-print-directory sim SEEDS=2000 FIRST=$(FRESH_SEED)

.PHONY: deflake
deflake: ## Repeat the tests of package PKG until one fails (RUN: a pattern of names, TIMES: an end, LOAD: busy processes a core; ALL=1: all, LOAD=2)
	@$(if $(ALL),.ci/plane >/dev/null && PLANE=1) $(GO) run ./integration/deflake $(if $(RUN),-run '$(RUN)') $(if $(TIMES),-times $(TIMES)) \
		$(if $(or $(LOAD),$(ALL)),-load $(or $(LOAD),2)) $(if $(ALL),./...,$(PKG))

.PHONY: cover
cover: ## Say how much of each package the tests run, and of all (temp/cover.txt)
	@.ci/cover

.PHONY: lines
lines: ## Count the product's lines of code: no blank ones, comments, tests, test suites, simulation, benchmark or generated code
	@.ci/product | xargs cat | grep -cvE '^[[:space:]]*(//|$$)'

.PHONY: sim
sim: ## Simulate SEEDS histories of a shard (default 500), or replay SEED with its timeline (LENGTH=10m, LOGS=1)
	@$(GO) test -c -o bin/shardtest ./pkg/shardtest
	@cd pkg/shardtest && GOGC=400 ../../bin/shardtest -test.run '^TestSimulation$$' -test.timeout 0 -sim.length=$(or $(LENGTH),10m) $(if $(LOGS),-sim.logs) \
		$(if $(SEED),-sim.seed=$(SEED),-sim.seeds=$(or $(SEEDS),500) -sim.first=$(or $(FIRST),1) -sim.figure)

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZTIME each (default 10s)
	@.ci/fuzz $(or $(FUZZTIME),10s)

.PHONY: generate
generate: ## Regenerate the code generated from proto/
	$(BUF) generate

.PHONY: manifests
manifests: ## Regenerate the schemas of the Kubernetes kinds, the operator's rights, and what clusterctl and the chart install of them
	$(CONTROLLER_GEN) object paths=./pkg/api/...
	$(CONTROLLER_GEN) crd:crdVersions=v1 paths=./pkg/api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=nstance-operator paths=./pkg/operator/... output:rbac:dir=config/rbac
	$(KUSTOMIZE) build config/default -o config/clusterctl/infrastructure-components.yaml
	$(KUSTOMIZE) build config/crd -o charts/nstance-operator/files/crds.yaml
	cp config/rbac/role.yaml config/rbac/workload.yaml charts/nstance-operator/files/

.PHONY: nix-hashes
nix-hashes: ## Compute the hashes by which the flake knows what it downloads (Nix itself is not needed)
	$(GO) run ./nix/hashes

.PHONY: terraform-tables
terraform-tables: ## Write the tables of inputs and outputs in the READMEs of the Terraform modules
	@cd integration/terraform && $(GO) run ./tables

.PHONY: testplane
testplane: ## Build a real Kubernetes control plane for tests, once (about 10 minutes, 600 MB under ~/.cache)
	@.ci/plane

.PHONY: verify
verify: generate manifests ## Regenerate, tidy and format; fail if that changes anything
	@.ci/proto
	$(GO) mod tidy
	cd cmd/dev-k8s && $(GO) mod tidy
	cd integration/terraform && $(GO) mod tidy
	$(GO) run ./terraform/policies
	@$(MAKE) --no-print-directory nix-hashes terraform-tables
	gofmt -w $$(git ls-files '*.go' | grep -v '\.pb\.go$$')
	@.ci/clean-tree

.PHONY: lint
lint: ## Run go vet, golangci-lint, and actionlint for the hosted workflows
	$(GO) vet -tags integration ./...
	$(LINT) --build-tags integration ./...
	cd cmd/dev-k8s && $(GO) vet ./... && $(GO) tool -modfile=../../.ci/tools/golangci-lint.mod $(LINTER) ./...
	cd integration/terraform && $(GO) vet -tags integration ./... && \
		$(GO) tool -modfile=../../.ci/tools/golangci-lint.mod $(LINTER) --build-tags integration ./...
	$(ACTIONLINT)

.PHONY: vulncheck
vulncheck: ## Check for known vulnerabilities, where the database can be reached
	@.ci/vulncheck

# Stories that run side by side find everything built (BUILT=1), so that no one replaces
# what another runs. What is fetched is fetched here: some of them have no network.
STORIES := mainjob aws operator
.PHONY: gate-built e2e-built downloads
gate-built: build testplane dev-k8s downloads ## Build what the tests and stories of make ci run
	$(GO) test -tags integration -run '^$$' ./integration/mainjob ./integration/operator >/dev/null
e2e-built: gate-built bin/clusterctl ## Build what the stories of make ci-all run
	$(GO) test -tags integration -run '^$$' $(addprefix ./integration/,$(STORIES)) >/dev/null

# Modules whose tests run without a network, and tools that stories build.
downloads: ## Download the modules of everything that make ci builds without a network
	@for dir in . cmd/dev-k8s integration/terraform; do (cd $$dir && $(GO) mod download) || exit 1; done
	@for tool in helm helm3; do $(GO) tool -n -modfile=.ci/tools/$$tool.mod helm >/dev/null || exit 1; done

# The stories that every change has to pass, by name.
.PHONY: e2e-gate e2e-operator-gate
e2e-gate: $(if $(BUILT),,build) ## Tell the main job's stories of make ci
	$(GO) test -tags integration -count=1 -timeout 15m -run '^(TestGate|TestBadInput|TestConfig)$$' -v ./integration/mainjob
e2e-operator-gate: $(if $(BUILT),,build testplane dev-k8s) ## Tell the operator's story of make ci
	PLANE=1 $(GO) test -tags integration -count=1 -timeout 15m -run '^TestGate$$' -v ./integration/operator

.PHONY: e2e
e2e: $(if $(BUILT),,build) ## Tell the stories of the main job with real processes (and containers where an engine answers)
	$(GO) test -tags integration -count=1 -timeout 40m -parallel 6 -v ./integration/mainjob

.PHONY: e2e-aws
e2e-aws: $(if $(BUILT),,build) ## Tell the stories of a shard on AWS, with real processes and a stand-in for AWS
	$(GO) test -tags integration -count=1 -timeout 20m -v ./integration/aws

# Which moves a tenant between management clusters in one of the operator's stories.
bin/clusterctl: .ci/tools/clusterctl.mod .ci/tools/clusterctl.sum
	$(GO) build -modfile=.ci/tools/clusterctl.mod -trimpath -ldflags '-s -w' -o $@ sigs.k8s.io/cluster-api/cmd/clusterctl

.PHONY: e2e-operator
e2e-operator: $(if $(BUILT),,build testplane dev-k8s bin/clusterctl) ## Tell the operator's stories on a whole Kubernetes control plane, Cluster API's core included
	PLANE=1 $(GO) test -tags integration -count=1 -timeout 40m -v ./integration/operator

# Images are for any machine, so nothing of this one's settings counts, and the Go that
# packs them is the one that compiles what is in them (docs/container-images.md).
IMAGES := GOTOOLCHAIN=$(shell sed -n 's/.*GOTOOLCHAIN=//p' .ko.yaml) $(GO) run ./images
RELEASE := $(if $(RELEASE_TAG),--tag=$(RELEASE_TAG)) $(if $(PROGRAMS),--programs=$(PROGRAMS))

SIGNER := $(if $(KEY),--key=$(KEY)) $(if $(KEYLESS),--keyless)
TRUST := $(if $(PUBLIC_KEY),--public-key=$(PUBLIC_KEY)) $(if $(IDENTITY),--identity='$(IDENTITY)') $(if $(ISSUER),--issuer=$(ISSUER))

.PHONY: images sign-images verify-images serve-images
images: ## Build the container images without an engine (IMAGE_REPO=: push them there; PROGRAMS=: only these)
	$(IMAGES) build $(RELEASE) $(if $(IMAGE_REPO),--repository=$(IMAGE_REPO))
sign-images: ## Sign what make images built, and its SBOMs (KEY=: a file or a reference to a KMS; KEYLESS=1)
	$(IMAGES) sign $(SIGNER)
verify-images: ## Verify what make sign-images signed (PUBLIC_KEY=, or IDENTITY= and ISSUER=)
	$(IMAGES) verify $(TRUST)

serve-images: ## Serve the registry that make images pushed to, for a container engine say, until interrupted
	$(IMAGES) serve

.PHONY: dist chart push-chart check-base
dist: ## Make archives of the binaries for plain machines in temp/dist, sign and verify them (WITH=: files signed with them)
	$(IMAGES) dist $(RELEASE) $(SIGNER) $(TRUST) $(addprefix --with=,$(WITH))
chart: ## Package the operator's chart with the image that make images built, and what clusterctl reads, in temp/chart
	$(IMAGES) chart $(if $(RELEASE_TAG),--tag=$(RELEASE_TAG))
push-chart: ## Push it as an image too (CHART_REPO=), sign and verify that
	$(IMAGES) chart $(if $(RELEASE_TAG),--tag=$(RELEASE_TAG)) --repository=$(or $(CHART_REPO),127.0.0.1:5017/charts) $(SIGNER) $(TRUST)
check-base: ## Check that the base image which .ko.yaml pins is the newest of its name
	$(IMAGES) base

.PHONY: chart-check
chart-check: testplane ## Lint the operator's chart, compare what it renders, install it on a real API server
	PLANE=1 $(GO) test -tags integration -count=1 -timeout 10m -v ./integration/chart

.PHONY: e2e-images
e2e-images: ## Build an image twice, and attack its signatures
	$(GO) test -tags integration -count=1 -timeout 20m -v ./integration/images

.PHONY: nix-check
nix-check: ## Evaluate and build the flake and run what it has, with this machine's Nix and a stub of nixpkgs
	@.ci/nix $(GO) test -tags integration -count=1 -timeout 30m -v ./integration/nix

.PHONY: terraform-check
terraform-check: ## Lint, test and apply the Terraform modules with a stub of the AWS provider (TERRAFORM=0, TOFU=0: not on that; RUN=: only these)
	@.ci/terraform $(GO) test -C integration/terraform -tags integration -count=1 -timeout 30m $(if $(RUN),-run '$(RUN)') -v .

# The images that no registry in reach may have, by the names of their recipes in
# .ci/stand-ins. One that NAME_IMAGE= names is not built.
STAND_INS := $(notdir $(wildcard .ci/stand-ins/*))
.PHONY: integration-images integration
integration-images: ## Build stand-ins for images of others, once (MINIO_IMAGE=, VERSITYGW_IMAGE=, K3S_IMAGE=: real ones instead)
	@for name in $(STAND_INS); do \
		named=$$(printenv "$$(echo $$name | tr a-z A-Z)_IMAGE") || named=; \
		if [ -n "$$named" ]; then echo "$$name is $$named"; continue; fi; \
		.ci/stand-in $$name || { code=$$?; [ $$code = 3 ] || exit $$code; echo "SKIPPED: the stand-in for $$name" >&2; }; \
	done

# The stories on a container engine, one after another: they measure.
CONTAINER_STORIES := containers storage failover cluster
integration: $(if $(filter 0,$(ENGINE)),,integration-images) ## Tell the stories on a container engine (ENGINE=1: fail without one; 0: skip)
	$(if $(filter 0,$(ENGINE)),,$(GO) test -count=1 -v -run '^(TestPulledByDigest|TestSignedOnly)$$' ./pkg/provider/docker)
	PLANE=$(or $(PLANE),1) $(GO) test -tags integration -count=1 -timeout 30m -p 1 -v $(addprefix ./integration/,$(CONTAINER_STORIES))

.PHONY: bench
bench: build ## Print every figure we measure ourselves by
	$(GO) run ./integration/bench $(BENCH)

.PHONY: ci ci-all
ci: ## Run what every change has to pass, about 10 minutes (FROM=step: from there on; ONLY=steps: just these, with commas between them)
	@$(GO) run ./integration/ci $(if $(FROM),-from $(FROM)) $(if $(ONLY),-only $(ONLY))
ci-all: ## Run everything that can be checked, about an hour (FROM, ONLY: as with make ci)
	@$(GO) run ./integration/ci -all $(if $(FROM),-from $(FROM)) $(if $(ONLY),-only $(ONLY))

# Where Kubernetes is wanted: an API server of the stack's own, or any cluster.
KUBERNETES := --kubernetes $(if $(DEV_KUBECONFIG),--kubeconfig $(DEV_KUBECONFIG))

# Only what a change touches is to differ, and that is not the version.
ifdef WATCH
WATCHING := --watch 'make --no-print-directory build VERSION=$(VERSION)'
endif

.PHONY: dev dev-server
dev: build ## The development stack with Kubernetes in the foreground; Ctrl-C stops all of it (DEV_KUBECONFIG=: on that cluster)
	bin/dev run $(KUBERNETES) $(WATCHING)
dev-server: build ## The same, without Kubernetes (WATCH=1, here and below: what changes is built and started again, agents too)
	bin/dev run $(WATCHING)

.PHONY: dev-up dev-down dev-status dev-logs dev-operator clean-dev
dev-up: build ## Start the stack in the background and wait until its groups are at size (K8S=1: with Kubernetes)
	bin/dev up $(if $(K8S),$(KUBERNETES)) $(WATCHING)
dev-logs: ## Show what component NAME of the stack says, as it says it
	tail -n 100 -F temp/logs/$(or $(NAME),dev).log
dev-operator: build ## Run the operator alone in the foreground, in the place of the one of a stack with Kubernetes
	bin/dev foreground operator $(KUBERNETES) $(WATCHING)
dev-down: ## Stop it, leaving nothing behind
	@if [ -x bin/dev ]; then bin/dev down; else echo "bin/dev is not built: nothing was started from here"; fi
dev-status: ## Say what of it runs
	@if [ -x bin/dev ]; then bin/dev status; else echo "bin/dev is not built: nothing was started from here"; fi
clean-dev: dev-down ## Stop it and remove its state and logs
	rm -rf temp
