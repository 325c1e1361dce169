//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/waits"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// stackPatience bounds the stack's start and its actions: its API server, Cluster API and the
// agents start at the same time.
const stackPatience = 4 * time.Minute

// developed is the development stack with Kubernetes, as started by make dev-up K8S=1.
type developed struct{ *fixture }

func develop(t *testing.T) *developed {
	t.Helper()
	planetest.Folder(t)
	f := &fixture{T: t, bin: filepath.Join(root(t), "bin"), temp: t.TempDir(), waits: waits.Of(t)}
	if _, err := os.Stat(filepath.Join(f.bin, "dev-k8s")); err != nil {
		t.Fatalf("%v: make dev-k8s builds it", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the stack's log:\n%s", f.tail("logs/dev.log", 80))
		}
		f.dev("down")
	})
	f.placeExamples(nil)
	return &developed{f}
}

func (s *developed) up() {
	s.Helper()
	s.dev("up", "--kubernetes", "--repository", root(s.T))
	s.env = s.readEnv()
}

func (s *developed) kubectl(args ...string) string {
	s.Helper()
	return strings.TrimSpace(string(s.run(filepath.Join(s.bin, "kubectl"), args...)))
}

func (s *developed) until(what string, check func() error) {
	s.Helper()
	defer s.waits.For(what)()
	planetest.Eventually(s.T, stackPatience, what, func(context.Context) error { return check() })
}

// ready returns the names of the ready nodes.
func (s *developed) ready(want int) (names []string) {
	s.Helper()
	s.until(fmt.Sprintf("%d nodes are ready", want), func() error {
		names = nil
		for line := range strings.Lines(s.kubectl("get", "nodes", "--no-headers")) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "Ready" {
				names = append(names, fields[0])
			}
		}
		if len(names) != want {
			return fmt.Errorf("they are %v", names)
		}
		return nil
	})
	return names
}

// TestDevelopmentStack starts Kubernetes beside the shards with one command. A file edited by a
// user is what the API server serves, and everything is there again after a restart of all of it.
func TestDevelopmentStack(t *testing.T) {
	s := develop(t)
	s.up()
	names := s.ready(4)
	s.until("the pool, which is there, runs", func() error {
		if phase := s.kubectl("-n", "nstance", "get", "machinepool", "web", "-o", "jsonpath={.status.phase}"); phase != "Running" {
			return fmt.Errorf("its phase is %q", phase)
		}
		return nil
	})

	file := filepath.Join(s.temp, "dev-k8s", "nodes", names[0]+".json")
	s.until("the label is served", func() error {
		got := s.kubectl("get", "node", names[0], "-o", "jsonpath={.metadata.labels.written}")
		if got == "by-hand" {
			return nil
		}
		s.label(file, "written", "by-hand") // repeated: a Node's update may have overwritten it
		return fmt.Errorf("it is %q", got)
	})

	s.kubectl("-n", "nstance", "scale", "machinepool", "web", "--replicas=6")
	s.ready(6)
	s.dev("down")
	if _, err := os.Stat(filepath.Join(s.temp, "dev.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the supervisor's socket is left: %v", err)
	}
	s.up()
	s.ready(6)
	if got := s.kubectl("-n", "nstance", "get", "machinepool", "web", "-o", "jsonpath={.spec.replicas}"); got != "6" {
		t.Errorf("the pool wants %s, and 6 before", got)
	}
}

// label edits a file by hand.
func (s *developed) label(file, key, value string) {
	s.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	var node map[string]any
	if err := json.Unmarshal(text, &node); err != nil {
		s.Fatal(err)
	}
	node["metadata"].(map[string]any)["labels"].(map[string]any)[key] = value
	if text, err = json.MarshalIndent(node, "", "  "); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.Fatal(err)
	}
}
