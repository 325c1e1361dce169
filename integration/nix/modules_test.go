//go:build integration

package nix_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is compared with testdata into it")

// machines are the example's machines, with the unit of each.
var machines = map[string]string{"server": "nstance-server.service", "machine": "nstance-agent.service"}

// unit returns the text of a unit of the example's machines, without store paths.
func unit(t *testing.T, machine, name string) string {
	t.Helper()
	text := here.must(t, "eval", here.of(`nixosConfigurations.`+machine+`.config.systemd.units."`+name+`".text`), "--raw")
	stored := regexp.MustCompile(`/[^" \n]*/store/[a-z0-9]{32}-([a-z.-]+?)(-dev|-[0-9a-f]{7})?([/" \n])`)
	return stored.ReplaceAllString(text, "/nix/store/$1$3")
}

// TestUnits compares the units of the example's machines with golden files.
func TestUnits(t *testing.T) {
	texts := map[string]string{}
	for machine, name := range machines {
		texts[name] = unit(t, machine, name)
		texts[machine+".json"] = here.must(t, "eval", here.of("nixosConfigurations."+machine+".config"), "--json", "--apply", `c: {
			inherit (c) users;
			ports = c.networking.firewall.allowedTCPPorts;
			packages = map (p: p.pname) c.environment.systemPackages;
			tmpfiles = c.systemd.tmpfiles.rules;
		}`)
	}
	for name, got := range texts {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is now\n%s\n(-update writes it into %s)", name, got, path)
		}
	}
}

// settings returns a unit's settings, by name; a list is joined to one text.
func settings(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(name, "#") {
			continue
		}
		switch value {
		case "true":
			value = "yes"
		case "false":
			value = "no"
		}
		all[name] = strings.TrimSpace(all[name] + " " + value)
	}
	return all
}

// TestHardening: a service on NixOS has all restrictions that it has elsewhere.
func TestHardening(t *testing.T) {
	differs := []string{
		"ExecStart", "EnvironmentFile", "WantedBy", "User", "Group", "DynamicUser", "ReadWritePaths", "ExecReload",
	}
	for machine, name := range machines {
		text, err := os.ReadFile(filepath.Join(here.repository, "images", "release", "systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		nixos, elsewhere := settings(unit(t, machine, name)), settings(string(text))
		for _, setting := range slices.Sorted(maps.Keys(elsewhere)) {
			if !slices.Contains(differs, setting) && nixos[setting] != elsewhere[setting] {
				t.Errorf("%s: %s is %q, and %q in the archives", name, setting, nixos[setting], elsewhere[setting])
			}
		}
	}
}

// TestExposure rates the units by systemd-analyze: 0 is best, 10 is worst. docs/nix.md has the
// figures.
func TestExposure(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: what systemd says of the units: no systemd-analyze in the path")
	}
	pages, err := os.ReadFile(filepath.Join(here.repository, "docs", "nix.md"))
	if err != nil {
		t.Fatal(err)
	}
	for machine, name := range machines {
		path := filepath.Join(t.TempDir(), name)
		// The programs that it starts are not relevant, and need not exist.
		text := regexp.MustCompile(`(?m)^(Exec[A-Za-z]*)=.*$`).ReplaceAllString(unit(t, machine, name), "$1=/bin/true")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("systemd-analyze says\n%s", out)
		}
		// Another version of systemd may rate slightly higher.
		promised := regexp.MustCompile("\\| `" + regexp.QuoteMeta(name) + "` \\| ([0-9.]+) \\|").FindSubmatch(pages)
		if promised == nil {
			t.Fatalf("docs/nix.md has no line of %s", name)
		}
		if score(t, found[1]) > score(t, promised[1])+0.3 {
			t.Errorf("%s: its exposure is %s, and docs/nix.md says %s", name, found[1], promised[1])
		}
	}
}

func score(t *testing.T, text []byte) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFirewall: the ports that a server listens on are open, wherever they are configured.
func TestFirewall(t *testing.T) {
	for module, want := range map[string]string{
		`{ openFirewall = false; }`:           `[]`,
		`{ }`:                                 `[8994,8991,8993,8992]`,
		`{ flags.agent-addr = "[::]:7994"; }`: `[7994,8991,8993,8992]`,
		`{ settings.server.bind.agent_addr = "0.0.0.0:6994"; }`:                                    `[6994,8991,8993,8992]`,
		`{ flags.agent-addr = ":7994"; settings.server.bind = { agent_addr = "0.0.0.0:6994"; }; }`: `[7994,8991,8993,8992]`,
	} {
		flake := here.configuration(t, `{
			services.nstance-server = { enable = true; shard = "a"; storage.bucket = "b"; openFirewall = nixpkgs.lib.mkDefault true; } // `+module+`;
		}`)
		got := here.must(t, "eval", flake+"#nixosConfigurations.mine.config.networking.firewall.allowedTCPPorts", "--json")
		if got != want {
			t.Errorf("%s opens %s, want %s", module, got, want)
		}
	}
}

// TestTwice: a module that is imported in two ways is one module.
func TestTwice(t *testing.T) {
	flake := here.configuration(t, `nstance.nixosModules.nstance-server nstance.nixosModules.default`)
	here.must(t, "eval", flake+"#nixosConfigurations.mine.config.system.build.toplevel.drvPath", "--raw")
}

// TestOptions: invalid values are refused, with messages that name the option.
func TestOptions(t *testing.T) {
	cases := here.must(t, "eval", here.configuration(t, "")+"#cases", "--json", "--apply",
		"cases: { good = builtins.attrNames cases.good; bad = builtins.mapAttrs (name: c: c.says) cases.bad; }")
	var all struct {
		Good []string
		Bad  map[string]string
	}
	if err := json.Unmarshal([]byte(cases), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Good) < 5 || len(all.Bad) < 10 {
		t.Fatalf("there are only %d cases that are good, and %d that are bad", len(all.Good), len(all.Bad))
	}
	machine := func(module string) (string, error) {
		flake := here.configuration(t, `((import "${nstance}/nix/tests/options.nix").`+module+`)`)
		_, said, err := here.run(t, "eval", flake+"#nixosConfigurations.mine.config.system.build.toplevel.drvPath", "--raw")
		return said, err
	}
	for _, name := range all.Good {
		if said, err := machine("good." + name); err != nil {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
	for name, says := range all.Bad {
		if said, err := machine("bad." + name + ".module"); err == nil || !strings.Contains(said, says) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, says, said)
		}
	}
}

// TestConfigIsChecked: a machine with an invalid config of its shard does not build.
func TestConfigIsChecked(t *testing.T) {
	build := func(size string) (said string, err error) {
		flake := here.configuration(t, `{
			imports = [ "${nstance}/nix/example/server.nix" ];
			services.nstance-server.settings.groups.default.more = { template = "knd"; size = `+size+`; };
		}`)
		_, said, err = here.run(t, "build", flake+"#nixosConfigurations.mine.config.system.build.toplevel", "--no-link")
		return said, err
	}
	if said, err := build("3"); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if said, err := build("(-1)"); err == nil || !strings.Contains(said, "groups.default.more.size: -1") {
		t.Errorf("%v\n%s", err, said)
	}
}
