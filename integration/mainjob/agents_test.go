//go:build integration

package mainjob

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

var digits = regexp.MustCompile(`\d+`)

// kill kills an instance's agent, as when a machine dies.
func (s *stack) kill(shard, id string) {
	s.t.Helper()
	if s.provider == "docker" {
		if out, err := exec.Command("docker", "kill", s.container(id)).CombinedOutput(); err != nil {
			s.t.Fatalf("kill container of %s: %v\n%s", id, err, out)
		}
		return
	}
	if err := syscall.Kill(s.agentPID(shard, id), syscall.SIGKILL); err != nil {
		s.t.Fatalf("kill agent of %s: %v", id, err)
	}
}

func (s *stack) agentPID(shard, id string) int {
	s.t.Helper()
	body, err := os.ReadFile(filepath.Join(s.temp, "agents", shard, id, "pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	pid, err := strconv.Atoi(digits.FindString(string(body)))
	if err != nil {
		s.t.Fatalf("pid of %s: %q", id, body)
	}
	return pid
}

func (s *stack) container(id string) string {
	s.t.Helper()
	out, err := exec.Command("docker", "ps", "-aq", "--filter", "label=nstance:instance-id="+id).Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		s.t.Fatalf("no container of %s: %v", id, err)
	}
	return strings.TrimSpace(string(out))
}

// machines counts the running machines of a shard, by processes or containers instead of a server's
// answer.
func (s *stack) machines(shard string) int {
	s.t.Helper()
	if s.provider == "docker" {
		out, err := exec.Command("docker", "ps", "-q", "--filter", "label=nstance:engine-scope="+s.temp,
			"--filter", "label=nstance:shard="+shard).Output()
		if err != nil {
			s.t.Fatal(err)
		}
		return len(strings.Fields(string(out)))
	}
	pids, err := filepath.Glob(filepath.Join(s.temp, "agents", shard, "*", "pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for _, file := range pids {
		body, err := os.ReadFile(file)
		if err != nil {
			continue // removed meanwhile
		}
		pid, err := strconv.Atoi(digits.FindString(string(body)))
		if err == nil && running(pid) {
			n++
		}
	}
	return n
}

// running reports whether a process runs; a zombie does not.
func running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(after), "Z")
}

// providers returns the providers that can run here. A missing engine is logged prominently.
func providers(t *testing.T) []string {
	t.Helper()
	if err := exec.Command("docker", "info").Run(); err != nil {
		t.Logf("SKIPPED on docker: no container engine answers (%v)", err)
		return []string{"process"}
	}
	return []string{"process", "docker"}
}
