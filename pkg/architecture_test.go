// Package pkg_test holds the shape of the repository: who may import whom, which
// package alone speaks to an SDK, how many methods a type has, and that
// CONTRIBUTING.md names what is there.
package pkg_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nstance/nstance/"

// proto is the generated code; every room that speaks gRPC may have it.
const proto = "proto/nstance/v1"

// rooms says which of our own packages each package may import. Imports go down
// only: a room that needs one beside or above it declares an interface instead.
func rooms() map[string][]string {
	ports := map[string][]string{
		proto:                  {},
		"pkg/fleet":            {},
		"pkg/pki":              {"pkg/fleet"},
		"pkg/nonce":            {"pkg/fleet"},
		"pkg/object":           {"pkg/retry"},
		"pkg/record":           {},
		"pkg/retry":            {},
		"pkg/metrics":          {},
		"pkg/env":              {},
		"pkg/awsclient":        {"pkg/env"},
		"pkg/awsclient/iam":    {},
		"pkg/asg":              {"pkg/awsclient", "pkg/metrics", "pkg/retry"},
		"pkg/audit":            {},
		"pkg/server/broadcast": {},
		"pkg/sigv4":            {},
		"pkg/files":            {},
		"pkg/garbage":          {},
		"pkg/logs":             {},
		"pkg/signals":          {},
		"pkg/freeport":         {},
		"pkg/leaktest":         {},
		"pkg/rapidseed":        {},
		"pkg/leaktest/leaks":   {"pkg/leaktest"},
		"pkg/api/v1beta1":      {},

		"pkg/tracing":               {},
		"pkg/tracing/otlp":          {"pkg/env", "pkg/tracing"},
		"pkg/tracing/otlp/otlptest": {},

		"pkg/config":          {"pkg/files", "pkg/fleet", "pkg/record"},
		"pkg/server/plan":     {"pkg/fleet"},
		"pkg/server/preview":  {"pkg/config", "pkg/fleet"},
		"pkg/provider":        {"pkg/fleet", "pkg/retry"},
		"pkg/provider/paced":  {"pkg/fleet", "pkg/provider"},
		"pkg/server/images":   {"pkg/provider"},
		"pkg/secrets":         {"pkg/object", "pkg/pki", "pkg/retry"},
		"pkg/server/election": {"pkg/object"},
		"pkg/server/ledger":   {"pkg/config", "pkg/fleet", "pkg/object", "pkg/record", "pkg/retry"},
		"pkg/identity":        {"pkg/pki", "pkg/retry"},
		"pkg/rpc":             {"pkg/audit", "pkg/pki", "pkg/retry", "pkg/tracing", proto},
		"pkg/client":          {"pkg/fleet", "pkg/retry", "pkg/rpc", proto},

		"pkg/server/balance":   {"pkg/fleet", "pkg/provider", "pkg/retry"},
		"pkg/server/census":    {"pkg/fleet", "pkg/provider"},
		"pkg/server/measure":   {"pkg/audit", "pkg/fleet", "pkg/metrics/prometheus", "pkg/object", "pkg/provider", "pkg/tracing"},
		"pkg/server/traces":    {"pkg/fleet", "pkg/tracing"},
		"pkg/server/problems":  {"pkg/fleet", "pkg/server/broadcast"},
		"pkg/server/history":   {"pkg/audit", "pkg/fleet", "pkg/object", "pkg/retry", "pkg/server/broadcast", "pkg/server/plan"},
		"pkg/server/fair":      {"pkg/fleet"},
		"pkg/server/deletions": {"pkg/fleet", "pkg/provider", "pkg/retry", "pkg/server/plan", "pkg/server/problems"},
		"pkg/server/subnets":   {"pkg/fleet", "pkg/provider", "pkg/provider/paced", "pkg/retry", "pkg/server/problems"},
		"pkg/server/schedule":  {"pkg/fleet"},
		"pkg/server/outage":    {"pkg/object", "pkg/retry"},
		"pkg/server/pacing":    {"pkg/fleet", "pkg/retry", "pkg/server/plan", "pkg/server/problems"},
		"pkg/server/surge":     {"pkg/fleet", "pkg/server/plan"},
		"pkg/server/observe": {
			"pkg/fleet", "pkg/provider", "pkg/server/census", "pkg/server/pacing", "pkg/server/plan", "pkg/server/problems",
		},
		"pkg/server/reconcile": {
			"pkg/fleet", "pkg/provider", "pkg/provider/paced", "pkg/retry", "pkg/server/balance", "pkg/server/census",
			"pkg/server/deletions", "pkg/server/fair", "pkg/server/observe", "pkg/server/pacing", "pkg/server/plan", "pkg/server/problems",
			"pkg/server/schedule", "pkg/server/traces", "pkg/server/subnets", "pkg/server/surge",
		},
		"pkg/agent": {"pkg/agent/spot", "pkg/env", "pkg/files", "pkg/fleet", "pkg/identity", "pkg/metrics", "pkg/pki",
			"pkg/retry", "pkg/rpc", "pkg/tracing", proto,
		},
		"pkg/agent/spot": {"pkg/fleet", "pkg/retry"},
		"pkg/admin": {
			"pkg/admin/backup", "pkg/awsclient", "pkg/client", "pkg/config", "pkg/fleet", "pkg/identity", "pkg/nonce", "pkg/object",
			"pkg/object/bucket", "pkg/pki", "pkg/record", "pkg/retry", "pkg/rpc", "pkg/secrets", "pkg/secrets/aws", proto,
		},
		"pkg/admin/backup":    {"pkg/config", "pkg/object"},
		"pkg/admin/profile":   {"pkg/awsclient"},
		"pkg/admin/dashboard": {},
		"pkg/admin/httpapi": {"pkg/admin", "pkg/admin/dashboard", "pkg/audit", "pkg/client", "pkg/fleet", "pkg/rpc", "pkg/tracing",
			proto},
		"pkg/admin/cli": {"pkg/admin", "pkg/admin/backup", "pkg/admin/httpapi", "pkg/client", "pkg/config", "pkg/fleet", "pkg/logs",
			"pkg/object", "pkg/rpc", "pkg/secrets", "pkg/tracing", proto,
		},

		"pkg/server/delivery": {"pkg/config", "pkg/files", "pkg/fleet", "pkg/server/ledger", "pkg/object", "pkg/pki", "pkg/retry"},
		"pkg/server/agents": {
			"pkg/audit", "pkg/files", "pkg/fleet", "pkg/pki", "pkg/rpc", "pkg/server/delivery", "pkg/server/ledger", proto,
		},
		"pkg/server/operators": {"pkg/audit", "pkg/config", "pkg/fleet", "pkg/pki", "pkg/rpc", "pkg/server/broadcast",
			"pkg/server/outage", "pkg/server/preview", proto},
		"pkg/server/registration": {"pkg/audit", "pkg/fleet", "pkg/nonce", "pkg/pki", "pkg/rpc", "pkg/tracing", proto},
		"pkg/server/renewal":      {"pkg/audit", "pkg/pki", "pkg/rpc", proto},
		"pkg/server/writes": {"pkg/config", "pkg/fleet", "pkg/object", "pkg/rpc", "pkg/server/election", "pkg/server/ledger",
			"pkg/server/reconcile"},
		"pkg/server/ondemand": {
			"pkg/audit", "pkg/config", "pkg/fleet", "pkg/retry", "pkg/rpc", "pkg/server/ledger", "pkg/server/operators", "pkg/server/writes",
		},
		"pkg/server/groups": {
			"pkg/config", "pkg/fleet", "pkg/object", "pkg/retry", "pkg/rpc", "pkg/server/election", "pkg/server/ledger",
			"pkg/server/operators", "pkg/server/plan", "pkg/server/problems", "pkg/server/reconcile", "pkg/server/writes",
		},
		"pkg/server/identities": {"pkg/fleet", "pkg/object", "pkg/pki", "pkg/server/election", "pkg/server/registration"},
		"pkg/server/registry": {
			"pkg/audit", "pkg/fleet", "pkg/object", "pkg/pki", "pkg/record", "pkg/retry", "pkg/rpc", "pkg/server/operators", "pkg/server/roster",
			"pkg/server/writes",
		},
		"pkg/server/roster": {"pkg/fleet", "pkg/object", "pkg/pki", "pkg/record", "pkg/retry", "pkg/rpc"},
		"pkg/server/leader": {
			"pkg/audit", "pkg/config", "pkg/fleet", "pkg/nonce", "pkg/object", "pkg/pki", "pkg/provider", "pkg/provider/paced", "pkg/record",
			"pkg/retry", "pkg/rpc", "pkg/secrets", "pkg/server/agents", "pkg/server/broadcast", "pkg/server/delivery", "pkg/server/election",
			"pkg/server/fair", "pkg/server/groups", "pkg/server/history", "pkg/server/identities", "pkg/server/images", "pkg/server/ledger",
			"pkg/server/measure",
			"pkg/server/ondemand", "pkg/server/operators", "pkg/server/outage", "pkg/server/plan", "pkg/server/preview",
			"pkg/server/problems", "pkg/server/reconcile",
			"pkg/server/registration", "pkg/server/registry", "pkg/server/roster", "pkg/server/traces", "pkg/server/writes",
		},
		"pkg/server": {
			"pkg/audit", "pkg/awsclient", "pkg/config", "pkg/fleet", "pkg/metrics", "pkg/metrics/prometheus", "pkg/object",
			"pkg/object/bucket", "pkg/pki", "pkg/provider", "pkg/provider/aws", "pkg/provider/docker", "pkg/provider/process",
			"pkg/retry", "pkg/rpc",
			"pkg/secrets", "pkg/secrets/aws",
			"pkg/server/agents", "pkg/server/election", "pkg/server/leader", "pkg/server/ledger", "pkg/server/measure",
			"pkg/server/operators", "pkg/server/outage", "pkg/server/identities", "pkg/server/registration", "pkg/server/renewal",
			"pkg/server/roster", "pkg/server/traces", "pkg/server/writes", "pkg/tracing", proto,
		},

		"pkg/object/objecttest/quirks": {},

		"pkg/object/bucket": {"pkg/awsclient", "pkg/object", "pkg/object/dir", "pkg/object/s3"},

		"pkg/shardtest": {
			"pkg/agent", "pkg/client", "pkg/config", "pkg/server/election", "pkg/fleet", "pkg/object", "pkg/object/mem",
			"pkg/object/objecttest", "pkg/pki", "pkg/server/plan", "pkg/provider", "pkg/provider/fake", "pkg/record", "pkg/retry", "pkg/rpc",
			"pkg/secrets", "pkg/server", proto,
		},

		"pkg/dev/gate":  {},
		"pkg/dev/s3":    {"pkg/dev/gate", "pkg/object", "pkg/sigv4"},
		"pkg/dev/kube":  {},
		"pkg/dev/nodes": {"pkg/fleet", "pkg/provider", "pkg/retry"},
		"pkg/dev/aws":   {"pkg/dev/gate", "pkg/provider/aws/awstest", "pkg/retry", "pkg/sigv4"},
		"pkg/dev/watch": {"pkg/retry"},
		"pkg/dev/stack": {
			"pkg/config", "pkg/dev/kube", "pkg/dev/nodes", "pkg/dev/watch",
			"pkg/provider", "pkg/provider/docker", "pkg/provider/process", "pkg/retry",
		},

		// The operator's rooms know one another only downwards: one reconciler none of
		// the others, and all of them the shards through interfaces of their own.
		"pkg/operator/planetest":   {"pkg/api/v1beta1", "pkg/freeport", "pkg/leaktest"},
		"pkg/operator/spread":      {},
		"pkg/operator/settings":    {"pkg/client", "pkg/env", "pkg/fleet", "pkg/rpc"},
		"pkg/operator/capi":        {},
		"pkg/operator/shards":      {"pkg/client", "pkg/retry", proto},
		"pkg/operator/secretstore": {"pkg/identity", "pkg/pki"},
		"pkg/operator/workload":    {"pkg/operator/capi", "pkg/retry"},
		"pkg/operator/problems":    {"pkg/api/v1beta1", "pkg/fleet", "pkg/operator/capi", "pkg/operator/shards", proto},
		"pkg/operator/drain":       {"pkg/api/v1beta1", "pkg/operator/capi", "pkg/operator/shards", "pkg/operator/workload", proto},
		"pkg/operator/cluster":     {"pkg/api/v1beta1", "pkg/operator/capi", "pkg/operator/shards"},
		"pkg/operator/bootstrap":   {"pkg/api/v1beta1", "pkg/operator/capi", "pkg/operator/shards", proto},
		"pkg/operator/pool": {
			"pkg/api/v1beta1", "pkg/operator/capi", "pkg/operator/shards", "pkg/operator/spread", "pkg/operator/workload", proto,
		},
		"pkg/operator/shardgroup": {"pkg/api/v1beta1", "pkg/fleet", "pkg/operator/capi", "pkg/operator/shards", proto},
		"pkg/operator/machine": {
			"pkg/api/v1beta1", "pkg/operator/capi", "pkg/operator/shards", "pkg/operator/workload", "pkg/retry", proto,
		},
		"pkg/operator/ondemand": {
			"pkg/api/v1beta1", "pkg/fleet", "pkg/operator/capi", "pkg/operator/shards", "pkg/operator/workload", proto,
		},
		"pkg/operator/shards/shardstest": {
			"pkg/client", "pkg/fleet", "pkg/operator/shards", "pkg/pki", "pkg/rpc", proto,
		},

		"pkg/operator/registration": {
			"pkg/client", "pkg/identity", "pkg/operator/secretstore", "pkg/pki", "pkg/retry", "pkg/rpc", proto,
		},
		"pkg/operator/registration/registrationtest": {"pkg/pki", "pkg/rpc", proto},

		// The only importer of the reconcilers: all of them are in one list.
		"pkg/operator": {
			"pkg/api/v1beta1", "pkg/client", "pkg/identity", "pkg/operator/bootstrap", "pkg/operator/capi", "pkg/operator/cluster",
			"pkg/operator/drain", "pkg/operator/machine", "pkg/operator/ondemand", "pkg/operator/pool", "pkg/operator/problems",
			"pkg/operator/registration", "pkg/operator/secretstore", "pkg/operator/settings", "pkg/operator/shardgroup", "pkg/operator/shards",
			"pkg/operator/workload", "pkg/retry",
		},

		"images":          {"images/base", "images/registry", "images/release"},
		"images/base":     {},
		"images/registry": {},
		"images/release":  {},

		"integration/cluster":         {},
		"integration/cluster/machine": {}, "integration/cluster/pack": {}, "integration/cluster/runtime": {},
		"integration/containers": {
			"images/base", "images/registry", "images/release", "pkg/object/s3", "pkg/provider", "pkg/provider/docker",
			"pkg/retry",
		},

		"cmd/nstance-server":   {"pkg/garbage", "pkg/logs", "pkg/server", "pkg/signals", "pkg/tracing", "pkg/tracing/otlp"},
		"cmd/nstance-asg":      {"pkg/asg", "pkg/logs", "pkg/signals"},
		"cmd/nstance-agent":    {"pkg/agent", "pkg/logs", "pkg/retry", "pkg/rpc", "pkg/signals", "pkg/tracing", "pkg/tracing/otlp"},
		"cmd/nstance-operator": {"pkg/garbage", "pkg/operator", "pkg/operator/settings", "pkg/signals"},
		"cmd/nstance-admin":    {"pkg/admin/cli", "pkg/admin/profile"},
		"cmd/dev":              {"pkg/dev/stack"},
		"cmd/dev-s3":           {"pkg/dev/gate", "pkg/dev/s3"},
		"cmd/dev-aws":          {"pkg/dev/aws", "pkg/dev/gate", "pkg/provider/aws/awstest"},
	}
	// What implements a port, and the port's contract as a test suite, know the
	// port and what the port knows.
	for port, children := range map[string][]string{
		"pkg/object":   {"s3", "dir", "mem", "objecttest"},
		"pkg/provider": {"aws", "docker", "process", "fake", "providertest"},

		"pkg/awsclient":        {"awsclienttest"},
		"pkg/secrets":          {"aws", "secretstest"},
		"pkg/server/reconcile": {"ledgertest"},
		"pkg/identity":         {"identitytest"},
		"pkg/metrics":          {"metricstest", "prometheus"},
	} {
		for _, child := range children {
			ports[port+"/"+child] = append([]string{port}, ports[port]...)
		}
	}
	// Its keys are those of the rest of AWS.
	ports["pkg/object/s3"] = append(ports["pkg/object/s3"], "pkg/awsclient", "pkg/env")
	// One provider's own rooms, below it.
	ports["pkg/provider/aws"] = append(ports["pkg/provider/aws"], "pkg/awsclient")
	ports["pkg/awsclient/awsclienttest"] = append(ports["pkg/awsclient/awsclienttest"], "pkg/awsclient/iam", "pkg/provider/aws/awstest/policy")
	ports["pkg/secrets/aws"] = append(ports["pkg/secrets/aws"], "pkg/awsclient", "pkg/retry")
	// It knows the wire, and nothing of what calls.
	ports["pkg/provider/aws/awstest"] = []string{"pkg/provider/aws/awstest/policy", "pkg/retry", "pkg/sigv4"}
	ports["pkg/provider/aws/awstest/policy"] = nil
	ports["pkg/provider/docker/signature"] = nil
	ports["pkg/provider/docker/registry"] = []string{"pkg/provider", "pkg/provider/docker/signature"}
	ports["pkg/provider/docker/registry/registrytest"] = []string{"pkg/provider/docker/signature"}
	ports["pkg/provider/docker"] = append(ports["pkg/provider/docker"], "pkg/provider/docker/registry", "pkg/provider/docker/signature")
	return ports
}

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct{ Path string }
}

// list returns our packages, and the module of every package they depend on.
func list(t *testing.T) (ours []pkg, modules map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-tags=integration", "-json=ImportPath,Standard,Imports,Module",
		"./cmd/...", "./pkg/...", "./proto/...", "./images/...", "./integration/containers", "./integration/cluster/...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	modules = map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(p.ImportPath, module):
			if p.ImportPath != module+"pkg" { // this test alone
				ours = append(ours, p)
			}
		case p.Module != nil:
			modules[p.ImportPath] = p.Module.Path
		}
	}
	if len(ours) < 20 {
		t.Fatalf("go list shows only %d packages", len(ours))
	}
	return ours, modules
}

func TestImports(t *testing.T) {
	ours, modules := list(t)
	allowed, libs := rooms(), libraries()
	seen, used := map[string]bool{}, map[string]bool{}
	for _, p := range ours {
		room := strings.TrimPrefix(p.ImportPath, module)
		seen[room] = true
		may, known := allowed[room]
		if !known {
			t.Errorf("%s: no row says what it may import", room)
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module); ok {
				if known && !slices.Contains(may, own) {
					t.Errorf("%s imports %s, which is not below it", room, own)
				}
				continue
			}
			lib := modules[imported]
			if imported == "database/sql" {
				t.Errorf("%s imports database/sql: only pkg/server/ledger keeps a cache, and speaks to SQLite itself", room)
			}
			if lib == "" {
				continue // the standard library
			}
			used[lib] = true
			who, known := libs[lib]
			if !known {
				t.Errorf("%s imports %s: no row says who may", room, lib)
			} else if who != nil && !slices.Contains(who, room) {
				t.Errorf("%s imports %s, which only %v may", room, lib, who)
			}
		}
	}
	for room := range allowed {
		if !seen[room] {
			t.Errorf("the row of %s is of no package", room)
		}
	}
	for lib := range libs {
		if !used[lib] {
			t.Errorf("the row of %s is of no import", lib)
		}
	}
}

// TestRoomsGoDown: the table itself has no cycle, and none of it leads up to a
// program.
func TestRoomsGoDown(t *testing.T) {
	allowed := rooms()
	var walk func(room string, trail []string)
	walk = func(room string, trail []string) {
		if slices.Contains(trail, room) {
			t.Fatalf("cycle: %v", append(trail, room))
		}
		for _, below := range allowed[room] {
			if _, ok := allowed[below]; !ok || strings.HasPrefix(below, "cmd/") {
				t.Errorf("%s may import %s, which is no room", room, below)
			}
			walk(below, append(slices.Clone(trail), room))
		}
	}
	for room := range allowed {
		walk(room, nil)
	}
}

var (
	row      = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| (.+) \\|$")
	backtick = regexp.MustCompile("`([^`]+)`")
)

// TestContributing: every folder of code has its place in CONTRIBUTING.md, and
// whatever that speaks of is there.
func TestContributing(t *testing.T) {
	body, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{} // folder: what the table says of it
	for _, m := range row.FindAllStringSubmatch(string(body), -1) {
		for _, folder := range backtick.FindAllStringSubmatch(m[1], -1) {
			for _, one := range expand(folder[1]) {
				named[one] = m[2]
			}
		}
	}
	if len(named) < 20 {
		t.Fatalf("the table names only %v", named)
	}
	for folder := range named {
		if info, err := os.Stat(filepath.Join("..", folder)); err != nil || !info.IsDir() {
			t.Errorf("CONTRIBUTING.md names the folder %s, which is not there", folder)
		}
	}
	for _, folder := range folders(t) {
		if _, ok := named[folder]; ok {
			continue
		}
		// A child is named in the row of its parent.
		if !strings.Contains(named[path.Dir(folder)], "`"+path.Base(folder)+"`") {
			t.Errorf("CONTRIBUTING.md does not say what %s owns", folder)
		}
	}
	for _, m := range backtick.FindAllStringSubmatch(string(body), -1) {
		if !strings.HasPrefix(m[1], "pkg/") && !strings.HasPrefix(m[1], "docs/") || strings.Contains(m[1], "{") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md speaks of %s, which is not there", m[1])
		}
	}
}

// TestLifeOfAnInstance: the files in which CONTRIBUTING.md tells the life of an
// instance are there, and so few that they can be read in one sitting.
func TestLifeOfAnInstance(t *testing.T) {
	body, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(body), "\n## The life of an instance")
	if !found {
		t.Fatal("CONTRIBUTING.md does not tell the life of an instance")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var files []string
	for _, m := range backtick.FindAllStringSubmatch(section, -1) {
		if !strings.HasSuffix(m[1], ".go") {
			continue
		}
		if slices.Contains(files, m[1]) {
			t.Errorf("%s is in the list twice", m[1])
		}
		files = append(files, m[1])
		if info, err := os.Stat(filepath.Join("..", m[1])); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the life of an instance is said to pass through %s, which is not there", m[1])
		}
	}
	if len(files) < 12 || len(files) > 22 {
		t.Errorf("the life of an instance passes through %d files, want 12 to 22: %v", len(files), files)
	}
}

// expand reads a name with one list in braces, as a shell does.
func expand(name string) []string {
	before, rest, ok := strings.Cut(name, "{")
	list, after, closed := strings.Cut(rest, "}")
	if !ok || !closed {
		return []string{name}
	}
	var out []string
	for one := range strings.SplitSeq(list, ",") {
		out = append(out, before+one+after)
	}
	return out
}

// folders are those of pkg, cmd and images that hold Go code.
func folders(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, root := range []string{"../pkg", "../cmd", "../images"} {
		err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
			folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(p)), "../")
			if err == nil && strings.HasSuffix(p, ".go") && folder != "pkg" && !slices.Contains(out, folder) {
				out = append(out, folder)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
