//go:build integration

package nix_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOutputs evaluates all outputs of the flake, for each kind of machine.
func TestOutputs(t *testing.T) {
	for output, want := range map[string][]string{
		"packages": {
			"capi", "capi-core", "default", "dev", "dev-k8s", "nstance-admin", "nstance-agent", "nstance-asg", "nstance-operator",
			"nstance-server", "plane",
		},
		"apps":      {"admin", "dev", "dev-k8s"},
		"devShells": {"default"},
		"checks": {
			"dev", "dev-k8s", "nstance-admin", "nstance-agent", "nstance-asg", "nstance-operator", "nstance-server", "options", "pin", "shard",
		},
	} {
		for _, system := range []string{"x86_64-linux", "aarch64-linux", "aarch64-darwin"} {
			if system == "aarch64-darwin" { // NixOS and kube-apiserver are not available
				linux := map[string][]string{"checks": {"options", "shard"}, "packages": {"plane"}, "apps": {"dev-k8s"}}
				want = slices.DeleteFunc(slices.Clone(want), func(name string) bool { return slices.Contains(linux[output], name) })
			}
			attribute := "drvPath"
			if output == "apps" {
				attribute = "program"
			}
			text := here.must(t, "eval", here.of(output+"."+system), "--json", "--apply", "builtins.mapAttrs (name: x: x."+attribute+")")
			var got map[string]string
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			var names []string
			for name, path := range got {
				names = append(names, name)
				if !strings.HasPrefix(path, "/") {
					t.Errorf("%s.%s.%s is %s", output, system, name, path)
				}
			}
			if slices.Sort(names); !slices.Equal(names, want) {
				t.Errorf("%s.%s has %v, want %v", output, system, names, want)
			}
		}
	}
	for _, system := range []string{"x86_64-linux", "aarch64-linux", "aarch64-darwin"} {
		if got := here.must(t, "eval", here.of("formatter."+system+".name"), "--raw"); got != "nixfmt-tree" {
			t.Errorf("the formatter of %s is %s", system, got)
		}
	}
}

// TestShell: the flake's shell has what `make check` may miss on a machine.
func TestShell(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(here.repository, ".ci", "check"))
	if err != nil {
		t.Fatal(err)
	}
	packages := here.must(t, "eval", here.of("devShells."+here.system+".default.packages"), "--json", "--apply", "map (p: p.name)")
	// Every shell has a C compiler.
	has := map[string]string{
		"go": "go_1_26", "git": "git", "docker": "docker-client", "nix": "nix", "chromium": "chromium", "systemd": "systemd",
	}
	lacks := regexp.MustCompile(`\black ([a-z]+) "`).FindAllStringSubmatch(string(text), -1)
	if len(lacks) < len(has) {
		t.Fatalf("make check knows %q only", lacks)
	}
	for _, tool := range lacks {
		if tool[1] == "terraform" {
			continue // its license is unfree in nixpkgs; make terraform-check builds OpenTofu itself
		}
		if name := has[tool[1]]; name == "" || !strings.Contains(packages, `"`+name+`"`) {
			t.Errorf("the shell has no %s: %s", tool[1], packages)
		}
	}
}

// TestOverlay builds the flake's packages from another package set.
func TestOverlay(t *testing.T) {
	apply := `overlay: builtins.mapAttrs (name: p: p.drvPath) (overlay (import ` + here.nixpkgs + `/packages.nix {
		lib = import ` + here.nixpkgs + `/lib.nix; system = "x86_64-linux"; packagesFor = null;
		host = builtins.fromJSON (builtins.readFile ` + here.nixpkgs + `/host.json);
	}) { })`
	text := here.must(t, "eval", here.of("overlays.default"), "--json", "--impure", "--apply", apply)
	var got map[string]string
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"nstance-admin", "nstance-agent", "nstance-asg", "nstance-operator", "nstance-server"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("the overlay has %v, want %v", names, want)
	}
}

// TestBuild builds the agent and inspects the result.
func TestBuild(t *testing.T) {
	// Through a user's own flake: one that overrides nixpkgs knows no commit.
	mine := here.configuration(t, "") + "#packages." + here.system + ".nstance-agent"
	agent := filepath.Join(here.build(t, mine), "bin", "nstance-agent")
	version, err := exec.CommandContext(t.Context(), agent, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "dev"
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", here.repository}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if git("status", "--porcelain", "--untracked-files=no") == "" {
		want = git("rev-parse", "HEAD")[:7]
	}
	if got := strings.TrimSpace(string(version)); got != "nstance-agent "+want {
		t.Errorf("it says %q, want version %s", got, want)
	}
	info, err := exec.CommandContext(t.Context(), "go", "version", "-m", agent).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"CGO_ENABLED=0", "-trimpath=true"} {
		if !strings.Contains(string(info), "\tbuild\t"+setting+"\n") {
			t.Errorf("it was built without %s:\n%s", setting, info)
		}
	}
	if strings.Contains(string(info), "vcs.") {
		t.Errorf("it knows of a clone:\n%s", info)
	}
	id, err := exec.CommandContext(t.Context(), "go", "tool", "buildid", agent).Output()
	if err != nil || strings.TrimSpace(string(id)) != "" {
		t.Errorf("it has the build id %q (%v)", id, err)
	}
}

// TestChecks builds the checks that only need an evaluation, and plants an error that each has to
// find.
func TestChecks(t *testing.T) {
	check := func(flake, name string) (said string, err error) {
		_, said, err = here.run(t, "build", flake+"#checks."+here.system+"."+name, "--no-link")
		return said, err
	}
	for _, c := range []struct{ name, file, from, to, says string }{
		{"pin", "nix/pin.json", `"go": "1.`, `"go": "0.`, "nix/pin.json says Go 0."},
		{"options", "nix/modules/server.nix", `|| !(lib.hasPrefix "/" cfg.storage.bucket)`, "|| true", "bucket-is-a-directory"},
		{"options", "nix/modules/agent.nix", "NSTANCE_[A-Z0-9_]+", "NOTHING", "agent-of-another-group"},
	} {
		if said, err := check(here.flake(), c.name); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, said)
		}
		if said, err := check(here.copied(t, c.file, c.from, c.to), c.name); err == nil || !strings.Contains(said, c.says) {
			t.Errorf("%s with another %s: %v\n%s", c.name, c.file, err, said)
		}
	}
}

// TestMachines makes Python parse the test script of two machines. The machines themselves are
// evaluated with the checks.
func TestMachines(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: whether the script of the NixOS test can be read: no python3 in the path")
	}
	script := here.must(t, "eval", here.of("checks.x86_64-linux.shard.testScript"), "--raw")
	cmd := exec.CommandContext(t.Context(), python, "-c", "import sys; compile(sys.stdin.read(), 'testScript', 'exec')")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, script)
	}
}

// TestVendorHash: downloads have to match the recorded hash.
func TestVendorHash(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(here.repository, "nix", "hashes.json"))
	if err != nil {
		t.Fatal(err)
	}
	hash := regexp.MustCompile(`"nstance": "(sha256-[^"]+)"`).FindSubmatch(text)
	if hash == nil {
		t.Fatalf("nix/hashes.json has no hash of nstance:\n%s", text)
	}
	wrong := here.copied(t, "nix/hashes.json", string(hash[1]), "sha256-"+strings.Repeat("A", 43)+"=")
	_, said, err := here.run(t, "build", wrong+"#nstance-agent", "--no-link")
	if err == nil || !strings.Contains(said, "hash mismatch") || !strings.Contains(said, string(hash[1])) {
		t.Errorf("%v: %s", err, said)
	}
}

// TestSource: a change of a page rebuilds nothing, and one of the code does.
func TestSource(t *testing.T) {
	path := func(flake string) string {
		return here.must(t, "eval", flake+"#packages."+here.system+".nstance-server.drvPath", "--raw")
	}
	now := path(here.copied(t, "README.md", "Nstance", "NSTANCE"))
	if other := path(here.copied(t, "docs/server.md", "nstance-server", "NSTANCE")); other != now {
		t.Error("a change of a page builds the server anew")
	}
	if other := path(here.copied(t, "cmd/nstance-server/main.go", "Run one shard", "Run a shard")); other == now {
		t.Error("a change of the code does not build the server anew")
	}
}
