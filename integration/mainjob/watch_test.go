//go:build integration

package mainjob

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWatch tests WATCH=1: a change of the source gets into the running servers and agents, and no
// instance is lost. Here the source is a folder with a single file, and its build installs binaries
// of another version.
func TestWatch(t *testing.T) {
	for _, provider := range providers(t) {
		t.Run(provider, func(t *testing.T) {
			source, next := t.TempDir(), buildAs(t, "next", "nstance-server", "nstance-agent")
			s := newStack(t, provider)
			s.bin = copied(t, s.bin)
			build := fmt.Sprintf("grep good main.go && for f in %s/*; do rm -f %s/${f##*/} && cp $f %s/; done", next, s.bin, s.bin)
			s.bring("--repository", source, "--watch", build)
			before, server, storage := s.instances("dev-1"), s.component("dev-1").PID, s.component("s3").PID

			write(t, filepath.Join(source, "main.go"), "bad")
			s.eventually("the failed build is told", func() (bool, string) {
				return len(s.logs("dev", "build failed")) == 1, ""
			})
			if now := s.component("dev-1").PID; now != server {
				t.Errorf("after a failed build the server's process is %d, and %d before", now, server)
			}

			write(t, filepath.Join(source, "main.go"), "good at last")
			s.eventually("the agents are told", func() (bool, string) {
				return len(s.logs("dev", "agents have the new program")) == 1, ""
			})
			if now := s.component("dev-1").PID; now == server {
				t.Error("the server runs on")
			}
			if now := s.component("s3").PID; now != storage {
				t.Error("storage, of which nothing changed, was started again")
			}
			if n := len(s.logs("dev-1", "version=next")); n == 0 {
				t.Error("the server that runs is not of the next version")
			}
			s.settle("dev-1", 2)
			for _, i := range before {
				s.eventually("the agent is of the next version", func() (bool, string) {
					version := s.agentVersion(i)
					return version == "next", version
				})
			}
			if now := s.running("dev-1"); !slices.Equal(now, ids(before)) {
				t.Errorf("the instances are %v, and %v before", now, ids(before))
			}
		})
	}
}

func ids(all []instance) (ids []string) {
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	return ids
}

// agentVersion returns the version that an agent reports.
func (s *stack) agentVersion(i instance) string {
	s.t.Helper()
	status := []string{filepath.Join(s.bin, "nstance-agent"), "status", "--output", "json"}
	if s.provider == "docker" {
		status = append([]string{"docker", "exec", "nstance-" + i.ID, "/usr/local/bin/nstance-agent"}, status[1:]...)
	} else {
		status = append([]string{"env", "NSTANCE_IDENTITY_DIR=" + filepath.Join(s.temp, "agents", "dev-1", i.ID, "identity")}, status...)
	}
	out, err := run(s.temp, status[0], status[1:]...)
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	var said struct{ Version string }
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		return err.Error()
	}
	return said.Version
}

// buildAs returns a folder with binaries of this version.
func buildAs(t *testing.T, version string, binaries ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range binaries {
		out, err := run(root(t), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version,
			"-o", filepath.Join(folder, name), "./cmd/"+name)
		if err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	return folder
}

// copied returns a copy of a folder of binaries, which may be replaced.
func copied(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range append(slices.Clone(product), "dev", "dev-s3") {
		binary, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), binary, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// write writes a file atomically: half of it would be another change.
func write(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}
