//go:build integration

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// minutes is how long a step may take on a machine that has much else to do.
const minutes = 5 * time.Minute

// TestTheWholePromise: one story from a cluster without anything of ours to machines that
// are its nodes, and back.
func TestTheWholePromise(t *testing.T) {
	s := begin(t)
	steps := []struct {
		name  string
		nodes bool // machines have to be nodes for it
		tell  func(*scene)
	}{
		{"install", false, (*scene).install},
		{"first machines", false, (*scene).firstMachines},
		{"drain", true, (*scene).drain},
		{"pod", true, (*scene).podOfItsOwn},
		{"remove", false, (*scene).remove},
	}
	for _, step := range steps {
		told := t.Run(step.name, func(t *testing.T) {
			within := *s
			within.World = s.In(t)
			if step.nodes && s.real != "" {
				t.Skipf("SKIPPED: machines join the stand-in's cluster only, and K3S_IMAGE names %s", s.real)
			}
			began := time.Now()
			step.tell(&within)
			t.Logf("%s: %s", step.name, time.Since(began).Round(time.Second))
		})
		if !told {
			s.look()
			return
		}
	}
}

// look shows what there is when a step failed.
func (s *scene) look() {
	for _, script := range []string{
		"kubectl get nodes,pods -A -o wide", "kubectl -n nstance get machinepools,machines,nstancemachinepools,nstancemachines -o wide",
		"kubectl -n nstance get events --sort-by=.lastTimestamp | tail -20", "kubectl -n nstance logs deployment/nstance-operator --tail 30",
		"nstance-admin group list", "nstance-admin instance list",
	} {
		out, err := s.try(s.Context(), script)
		s.Logf("$ %s\n%s%v", script, out, err)
	}
}

// install does what docs/install.md says, to the operator's certificate.
func (s *scene) install() {
	s.Helper()
	s.run(s.page().block("cat > values.yaml"))
	s.run(s.page().block("helm -n nstance test"))
}

// nodes are the names of the cluster's nodes that are instances and ready, in order.
func (s *scene) nodes(ctx context.Context) ([]string, error) {
	const each = `{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`
	out, err := s.try(ctx, "kubectl get nodes -o jsonpath='"+each+"'")
	var names []string
	for line := range strings.Lines(out) {
		if name, ready, _ := strings.Cut(strings.TrimSpace(line), " "); ready == "True" && strings.HasPrefix(name, "knd") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

func (s *scene) ready(want int) (names []string) {
	s.Helper()
	took := s.Eventually(minutes, fmt.Sprintf("%d machines are nodes", want), func(ctx context.Context) error {
		var err error
		if names, err = s.nodes(ctx); err == nil && len(names) != want {
			err = fmt.Errorf("they are %v", names)
		}
		return err
	})
	s.Logf("%d nodes after %s", want, took.Round(time.Millisecond))
	return names
}

// firstMachines makes a pool, and scales it, as docs/install.md says: each machine that
// joins shows its node in Cluster API's Machine.
func (s *scene) firstMachines() {
	s.Helper()
	s.run(s.page().block("kubectl -n nstance scale machinepool workers"))
	if s.real != "" {
		s.running(3)
		return
	}
	names := s.ready(3)
	s.Eventually(minutes, "Machines have their nodes", func(ctx context.Context) error {
		out, err := s.try(ctx, `kubectl -n nstance get machines -o jsonpath='{range .items[*]}{.status.nodeRef.name}{"\n"}{end}'`)
		if got := strings.Fields(out); err == nil && !slices.Equal(slices.Sorted(slices.Values(got)), names) {
			err = fmt.Errorf("Machines have %v, the nodes are %v", got, names)
		}
		return err
	})
}

// running waits until the shard has instances of the pool that run.
func (s *scene) running(want int) {
	s.Helper()
	s.Eventually(minutes, fmt.Sprintf("%d instances run", want), func(ctx context.Context) error {
		out, err := s.try(ctx, "nstance-admin instance list --group workers | grep -c ' running ' || true")
		if err == nil && out != strconv.Itoa(want) {
			err = fmt.Errorf("%s do", out)
		}
		return err
	})
}

// remove ends it as docs/install.md says; the shard keeps its machines.
func (s *scene) remove() {
	s.Helper()
	count := s.run("nstance-admin instance list --group workers | grep -c ' running '")
	s.run(s.page().block("helm -n nstance uninstall"))
	if left := s.run("nstance-admin instance list --group workers | grep -c ' running '"); left != count {
		s.Errorf("of %s machines %s are left", count, left)
	}
}
