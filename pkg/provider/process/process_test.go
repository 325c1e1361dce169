package process_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/leaktest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

// The test binary is its own agent: started with this variable, it waits for
// SIGTERM. Its value marks the processes of this run.
const agentVar = "TEST_AGENT_OF"

func TestMain(m *testing.M) {
	if os.Getenv(agentVar) != "" {
		agent()
		return
	}
	if os.Getenv(serverVar) != "" {
		server()
		return
	}
	leaktest.Main(m.Run)
}

// agent prints its environment and waits for SIGTERM.
func agent() {
	signals := make(chan os.Signal, 1)
	if os.Getenv("STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(signals, syscall.SIGTERM)
	}
	if heir := os.Getenv(heirVar); heir != "" {
		leaveSession(heir)
	}
	_ = os.WriteFile("environment", []byte(strings.Join(os.Environ(), "\n")), 0o600)
	select {
	case <-signals:
	case <-time.After(time.Minute): // in case the test itself is killed
	}
}

func marker() string { return strconv.Itoa(os.Getpid()) }

// pidsOfAgents finds the agents of this run by their environment; without /proc it finds none.
func pidsOfAgents() (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(env), agentVar+"="+marker()+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// fixture is one folder with its processes.
type fixture struct {
	dir string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir()}
	t.Cleanup(func() { f.killAll(t) })
	return f
}

// killAll kills every process in the folder's records, and waits until all are gone.
func (f *fixture) killAll(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(f.dir, "*", "*", "pid"))
	for _, file := range files {
		if pid := pidIn(file); pid > 1 {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	eventually(t, "all processes are gone", func() bool {
		for _, file := range files {
			if pid := pidIn(file); pid > 1 && running(pid) {
				return false
			}
		}
		return true
	})
}

// running reports whether a process exists, and is no zombie as far as that is visible: an agent
// whose server was killed is reaped by init.
func running(pid int) bool {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	now := started(pid)
	return now != "" && now[0] != 'Z'
}

// started returns the state of a process and its start time; empty without such a process or /proc.
func started(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[0] + " " + fields[19]
}

func pidIn(file string) int {
	data, _ := os.ReadFile(file)
	first, _, _ := strings.Cut(string(data), "\n")
	pid, _ := strconv.Atoi(first)
	return pid
}

func (f *fixture) pid(vm provider.VM) int {
	return pidIn(filepath.Join(f.folder(vm), "pid"))
}

func (f *fixture) folder(vm provider.VM) string {
	return filepath.Join(f.dir, vm.Tags[provider.TagShard], vm.ProviderID)
}

func (f *fixture) config(t *testing.T, scope provider.Scope) process.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := process.Default(scope, slog.New(slog.DiscardHandler))
	cfg.Dir, cfg.Agent, cfg.Env = f.dir, self, map[string]string{agentVar: marker()}
	cfg.ArgsEnv = []string{"COLOUR", "STUBBORN"}
	cfg.ScanInterval = 20 * time.Millisecond
	cfg.StopGrace = 2 * time.Second
	return cfg
}

func open(t *testing.T, cfg process.Config) *process.Provider {
	t.Helper()
	p, err := process.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// eventually polls an external condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.World {
		f := newFixture(t)
		planted := 0
		return providertest.World{
			Open: func(t *testing.T, scope provider.Scope) provider.Provider { return open(t, f.config(t, scope)) },
			Kill: func(t *testing.T, vm provider.VM) {
				if err := syscall.Kill(f.pid(vm), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
			Plant: func(t *testing.T, tags map[string]string) {
				planted++
				f.plant(t, fmt.Sprintf("stray-%d", planted), tags)
			},
			Killed:   "signal: killed",
			Patience: time.Minute,
			BadArgs:  []map[string]any{{"image": "debian"}, {"env": 1}, {"env": map[string]any{"NSTANCE_INSTANCE_ID": "x"}}},
		}
	}})
}

// plant creates an instance's folder without a provider, always in shard-1, whatever its tags say.
func (f *fixture) plant(t *testing.T, name string, tags map[string]string) string {
	t.Helper()
	dir := filepath.Join(f.dir, "shard-1", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for k, v := range tags {
		pairs = append(pairs, fmt.Sprintf("%q:%q", k, v))
	}
	state := fmt.Sprintf(`{"tags":{%s},"created_at":"2026-01-02T03:04:05Z"}`, strings.Join(pairs, ","))
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var scope = provider.Scope{ClusterID: "c", Shard: "shard-1"}

func spec(n int) provider.Spec {
	id, err := fleet.NewID("knc", time.UnixMilli(int64(1_700_000_000_000+n)), zeros{})
	if err != nil {
		panic(err)
	}
	return provider.Spec{
		ID: id, Hostname: string(id), Subnet: "a",
		Tags: scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"}),
		Bootstrap: provider.Bootstrap{
			CACert: []byte("the ca"), Nonce: "the.nonce.jwt",
			RegistrationAddrs: []string{"10.0.0.1:8992", "10.0.0.2:8992"}, AgentAddrs: []string{"10.0.0.1:8994"},
			ReportInterval: 2 * time.Second,
		},
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
