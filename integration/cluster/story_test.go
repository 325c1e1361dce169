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

// minutes bounds a step, generously for a machine under load.
const minutes = 5 * time.Minute

// TestTheWholePromise: from a plain cluster to machines that are its nodes, and back.
func TestTheWholePromise(t *testing.T) {
	f := newFixture(t)
	steps := []struct {
		name  string
		nodes bool // needs machines that can be nodes
		tell  func(*fixture)
	}{
		{"install", false, (*fixture).install},
		{"first machines", false, (*fixture).firstMachines},
		{"drain", true, (*fixture).drain},
		{"pod", true, (*fixture).podOfItsOwn},
		{"remove", false, (*fixture).remove},
	}
	for _, step := range steps {
		told := t.Run(step.name, func(t *testing.T) {
			within := *f
			within.World = f.In(t)
			if step.nodes && f.real != "" {
				t.Skipf("SKIPPED: machines join the stand-in's cluster only, and K3S_IMAGE names %s", f.real)
			}
			began := time.Now()
			step.tell(&within)
			t.Logf("%s: %s", step.name, time.Since(began).Round(time.Second))
		})
		if !told {
			f.look()
			return
		}
	}
}

// look prints the state when a step failed.
func (f *fixture) look() {
	for _, script := range []string{
		"kubectl get nodes,pods -A -o wide", "kubectl -n nstance get machinepools,machines,nstancemachinepools,nstancemachines -o wide",
		"kubectl -n nstance get events --sort-by=.lastTimestamp | tail -20", "kubectl -n nstance logs deployment/nstance-operator --tail 30",
		"nstance-admin group list", "nstance-admin instance list",
	} {
		out, err := f.try(f.Context(), script)
		f.Logf("$ %s\n%s%v", script, out, err)
	}
}

// install executes docs/install.md up to the operator's certificate.
func (f *fixture) install() {
	f.Helper()
	f.run(f.page().block("cat > values.yaml"))
	f.run(f.page().block("helm -n nstance test"))
}

// nodes returns the sorted names of the cluster's ready nodes that are instances.
func (f *fixture) nodes(ctx context.Context) ([]string, error) {
	const each = `{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`
	out, err := f.try(ctx, "kubectl get nodes -o jsonpath='"+each+"'")
	var names []string
	for line := range strings.Lines(out) {
		if name, ready, _ := strings.Cut(strings.TrimSpace(line), " "); ready == "True" && strings.HasPrefix(name, "knd") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

func (f *fixture) ready(want int) (names []string) {
	f.Helper()
	took := f.Eventually(minutes, fmt.Sprintf("%d machines are nodes", want), func(ctx context.Context) error {
		var err error
		if names, err = f.nodes(ctx); err == nil && len(names) != want {
			err = fmt.Errorf("they are %v", names)
		}
		return err
	})
	f.Logf("%d nodes after %s", want, took.Round(time.Millisecond))
	return names
}

// firstMachines creates a pool and scales it as in docs/install.md: each machine that joins shows
// its node in Cluster API's Machine.
func (f *fixture) firstMachines() {
	f.Helper()
	f.run(f.page().block("kubectl -n nstance scale machinepool workers"))
	if f.real != "" {
		f.running(3)
		return
	}
	names := f.ready(3)
	f.Eventually(minutes, "Machines have their nodes", func(ctx context.Context) error {
		out, err := f.try(ctx, `kubectl -n nstance get machines -o jsonpath='{range .items[*]}{.status.nodeRef.name}{"\n"}{end}'`)
		if got := strings.Fields(out); err == nil && !slices.Equal(slices.Sorted(slices.Values(got)), names) {
			err = fmt.Errorf("Machines have %v, the nodes are %v", got, names)
		}
		return err
	})
}

// running waits until the shard has running instances of the pool.
func (f *fixture) running(want int) {
	f.Helper()
	f.Eventually(minutes, fmt.Sprintf("%d instances run", want), func(ctx context.Context) error {
		out, err := f.try(ctx, "nstance-admin instance list --group workers | grep -c ' running ' || true")
		if err == nil && out != strconv.Itoa(want) {
			err = fmt.Errorf("%s do", out)
		}
		return err
	})
}

// remove uninstalls as in docs/install.md; the shard keeps its machines.
func (f *fixture) remove() {
	f.Helper()
	count := f.run("nstance-admin instance list --group workers | grep -c ' running '")
	f.run(f.page().block("helm -n nstance uninstall"))
	if left := f.run("nstance-admin instance list --group workers | grep -c ' running '"); left != count {
		f.Errorf("of %s machines %s are left", count, left)
	}
}
