package process_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

// With this variable the test binary is a server that creates one instance in the folder that it
// names.
const serverVar = "TEST_SERVER_IN"

// server creates instance 1 once it reads a line, and prints the result.
func server() {
	self, err := os.Executable()
	if err == nil {
		cfg := process.Default(scope, slog.New(slog.DiscardHandler))
		cfg.Dir, cfg.Agent, cfg.Env = os.Getenv(serverVar), self, map[string]string{agentVar: os.Getenv("TEST_MARKER")}
		var p *process.Provider
		if p, err = process.New(cfg); err == nil {
			fmt.Println("ready")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			_, err = p.Create(context.Background(), spec(1))
		}
	}
	fmt.Println("created", err)
}

// startServer starts a server and waits until it is about to create; the returned function lets it
// continue.
func startServer(t *testing.T, f *fixture) (cmd *exec.Cmd, release func(), out *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), serverVar+"="+f.dir, "TEST_MARKER="+marker())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out = bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("server says %q, %v", line, err)
	}
	return cmd, func() { _ = in.Close() }, out
}

// agents counts the running agents of this run that belong to a folder.
func agents(f *fixture) (n int) {
	for _, pid := range pidsOfAgents() {
		if cwd, err := os.Readlink("/proc/" + pid + "/cwd"); err == nil && len(cwd) > len(f.dir) && cwd[:len(f.dir)] == f.dir {
			n++
		}
	}
	return n
}

// TestServersRace: servers in separate processes create one instance at the same moment.
func TestServersRace(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	var releases []func()
	for range 3 {
		cmd, release, out := startServer(t, f)
		releases = append(releases, release)
		wg.Go(func() {
			if line, err := out.ReadString('\n'); line != "created <nil>\n" {
				t.Errorf("server says %q, %v", line, err)
			}
			_ = cmd.Wait()
		})
	}
	for _, release := range releases {
		release()
	}
	wg.Wait()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("agents can't be counted without /proc:", err)
	}
	eventually(t, "the agent runs", func() bool { return agents(f) > 0 })
	if n := agents(f); n != 1 {
		t.Errorf("%d agents run for one instance", n)
	}
}

// TestServerKilledInCreate kills a server a little later each time after the start of its create.
// However far it got, the next server's create results in exactly one agent, and the agent outlives
// the server that started it.
func TestServerKilledInCreate(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("agents can't be counted without /proc:", err)
	}
	seen := map[provider.State]int{}
	for i := range 10 {
		f := newFixture(t)
		cmd, release, _ := startServer(t, f)
		release()
		fuse := time.NewTimer(time.Duration(i) * 400 * time.Microsecond)
		<-fuse.C
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		p := open(t, f.config(t, scope))
		seen[state(t, p, provider.Ref{ID: spec(1).ID})]++
		vm, err := p.Create(t.Context(), spec(1))
		if err != nil || vm.State != provider.StateRunning {
			t.Fatalf("create after the crash: %s, %v", vm.State, err)
		}
		eventually(t, "the agent runs", func() bool { return agents(f) > 0 })
		if n := agents(f); n != 1 {
			t.Errorf("kill %d: %d agents run", i, n)
		}
		f.killAll(t)
	}
	t.Logf("the crash left: %v", seen)
}
