//go:build integration

package nix_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/docker"
)

// TestRunDev follows README's instructions for Nix, in an empty folder, with programs in a
// read-only folder.
func TestRunDev(t *testing.T) {
	t.Run("process", func(t *testing.T) { runDev(t, "process") })
	t.Run("docker", func(t *testing.T) {
		if err := docker.Ping(t.Context(), ""); err != nil {
			t.Skipf("SKIPPED: no container engine answers: %v", err)
		}
		runDev(t, "docker")
	})
}

// said is a program's output so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// stack is a stack that `nix run` started.
type stack struct {
	folder string
	out    said
	stop   func() error // as Ctrl-C does
}

// start runs an app of the flake in an empty folder, until it reports that it is up.
func start(t *testing.T, app, up string, env ...string) *stack {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{folder: folder}
	cmd := here.command(t, "run", here.of(app))
	cmd.Dir, cmd.Env = folder, append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var how error
	go func() {
		how = cmd.Wait()
		close(ended)
	}()
	s.stop = sync.OnceValue(func() error {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // it may have ended already
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		return how
	})
	t.Cleanup(func() { _ = s.stop() })
	// It is built first.
	for deadline := time.Now().Add(15 * time.Minute); !strings.Contains(s.out.String(), up); {
		select {
		case <-ended:
			t.Fatalf("it ended (%v):\n%s", how, s.out.String())
		case <-time.After(50 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatalf("it is not up:\n%s", s.out.String())
			}
		}
	}
	return s
}

// tries returns the commands that it suggests after a text.
func (s *stack) tries(t *testing.T, after string) []string {
	t.Helper()
	_, text, _ := strings.Cut(s.out.String(), after)
	_, text, found := strings.Cut(text, "Try:\n")
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  ") {
			break
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	if !found || len(lines) == 0 {
		t.Fatalf("it tells nothing to try after %q:\n%s", after, s.out.String())
	}
	return lines
}

// end sends Ctrl-C, after which only the folder temp may be left.
func (s *stack) end(t *testing.T) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Errorf("Ctrl-C: %v\n%s", err, s.out.String())
	}
	left(t, s.folder)
}

const up = "The development stack is up"

func runDev(t *testing.T, provider string) {
	s := start(t, "dev", up, "DEV_PROVIDER="+provider)
	sh(t, s.folder, s.tries(t, up)[0], "dev-1 ", "dev-2 ")
	admin := ". temp/dev.env && nix " + quoted(here.command(t, "run", here.of("admin")).Args[1:]) + " --"
	sh(t, s.folder, admin+" group scale web 3 --shard dev-1 --wait")
	sh(t, s.folder, admin+" instance list --shard dev-1 -o json | grep -c '\"id\"'", "3")
	s.end(t)
}

// TestRunDevK8s does the same with Kubernetes, whose programs the flake builds.
func TestRunDevK8s(t *testing.T) {
	if !here.plane {
		t.Skip("SKIPPED: the stub has no Kubernetes: make testplane builds it")
	}
	const up = "Kubernetes is up"
	s := start(t, "dev-k8s", up, "DEV_PROVIDER=process")
	tries := s.tries(t, up)
	sh(t, s.folder, tries[0], "cluster.cluster.x-k8s.io", "machinepool.cluster.x-k8s.io/web")
	sh(t, s.folder, ". temp/dev.env && "+tries[1], "scaled")
	s.end(t)
}

// sh runs a suggested command, and looks for text in its output.
func sh(t *testing.T, folder, line string, reads ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = folder, here.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	for _, text := range reads {
		if !strings.Contains(string(out), text) {
			t.Errorf("%s: want %q in\n%s", line, text, out)
		}
	}
}

func quoted(args []string) string {
	var b strings.Builder
	for _, arg := range args {
		b.WriteString(" '" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
	}
	return b.String()
}

// left fails if anything of a stack but its folder is left.
func left(t *testing.T, folder string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), folder) {
			t.Errorf("%s is left: %s", filepath.Dir(path), strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	for _, port := range []string{"8989", "8990", "9000"} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Errorf("port %s: %v", port, err)
			continue
		}
		l.Close()
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "temp" {
			t.Errorf("%s lies in the folder where it was started", entry.Name())
		}
	}
}
