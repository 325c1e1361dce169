package process_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

func TestWithOptions(t *testing.T) {
	base := process.Default(scope, slog.New(slog.DiscardHandler))
	cfg, err := base.WithOptions(map[string]any{
		"dir": "/d", "agent": "/a", "env": map[string]any{"A": "1"}, "stop_grace": "7s", "scan_interval": "250ms",
	})
	if err != nil || cfg.Dir != "/d" || cfg.Agent != "/a" || cfg.Env["A"] != "1" ||
		cfg.StopGrace != 7*time.Second || cfg.ScanInterval != 250*time.Millisecond || cfg.Scope != scope {
		t.Errorf("with all options: %+v, %v", cfg, err)
	}
	if cfg, err := base.WithOptions(nil); err != nil || cfg.StopGrace != base.StopGrace {
		t.Errorf("without options: %+v, %v", cfg, err)
	}
	for want, options := range map[string]map[string]any{
		"options.directory: no such field (have: agent, args_env, dir, env, scan_interval, stop_grace": {"directory": "/d"},
		"options.dir: got a number: want a string":                                                     {"dir": 1},
		`options.stop_grace: "soon" is not valid: want a duration such as 5s`:                          {"stop_grace": "soon"},
	} {
		if _, err := base.WithOptions(options); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", options, err, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*process.Config){
		"cluster id":                       func(c *process.Config) { c.Scope.ClusterID = "" },
		"shard":                            func(c *process.Config) { c.Scope.Shard = "../s" },
		"options.dir: required":            func(c *process.Config) { c.Dir = "" },
		"options.agent: required":          func(c *process.Config) { c.Agent = "" },
		"options.agent: stat /no/such":     func(c *process.Config) { c.Agent = "/no/such" },
		"is not an executable file":        func(c *process.Config) { c.Agent = plain },
		"options.stop_grace: 0s":           func(c *process.Config) { c.StopGrace = 0 },
		"options.scan_interval: -1s":       func(c *process.Config) { c.ScanInterval = -time.Second },
		"options.env.NSTANCE_INSTANCE_ID:": func(c *process.Config) { c.Env = map[string]string{"NSTANCE_INSTANCE_ID": "x"} },
		"the logger is missing":            func(c *process.Config) { c.Logger = nil },
	} {
		cfg := newFixture(t).config(t, scope)
		change(&cfg)
		if _, err := process.New(cfg); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrInvalid with %q", err, want)
		}
	}
}

// FuzzFolder writes anything into the files of an instance's folder: the result is a VM of this
// shard or none, and never a running one.
func FuzzFolder(f *testing.F) {
	tags, err := json.Marshal(map[string]any{"tags": spec(1).Tags})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(tags), "")
	f.Add(string(tags), "1\n")
	f.Add(string(tags), "-1\nboot\n1 (a) S 1 1 1\n")
	f.Add(string(tags), "1\nb\n1 (sh) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12 13 14\n")
	f.Add(`{"tags":{"nstance:managed":"true"}}`, "99999999999999999999\n\n\n")
	f.Add(`[]`, "2\nb\n)))))\n")
	self, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	cfg := process.Default(scope, slog.New(slog.DiscardHandler))
	cfg.Dir, cfg.Agent = f.TempDir(), self
	p, err := process.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	defer p.Close()
	dir := filepath.Join(cfg.Dir, scope.Shard, string(spec(1).ID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, state, pid string) {
		for name, content := range map[string]string{"state.json": state, "pid": pid} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		vms, err := p.List(t.Context())
		if err != nil || len(vms) > 1 {
			t.Fatalf("list: %v, %v", vms, err)
		}
		for _, vm := range vms {
			if vm.State.Alive() || !scope.Owns(vm.Tags) {
				t.Errorf("%q and %q make %+v", state, pid, vm)
			}
		}
	})
}
