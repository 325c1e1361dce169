package nodes_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nstance/nstance/pkg/dev/nodes"
	"github.com/nstance/nstance/pkg/provider"
)

// machines is a provider whose machines the test sets.
type machines struct {
	mu      sync.Mutex
	vms     []provider.VM
	watched func(provider.Event)
}

func newMachines(vms ...provider.VM) *machines { return &machines{vms: vms} }

func (m *machines) List(context.Context) ([]provider.VM, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.vms), nil
}

func (m *machines) Watch(ctx context.Context, fn func(provider.Event)) error {
	m.mu.Lock()
	m.watched = fn
	m.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

// set replaces the machines, and sends an event.
func (m *machines) set(vms ...provider.VM) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.vms = vms
	if m.watched != nil {
		m.watched(provider.Event{})
	}
}

// run keeps Nodes for the machines until the test ends.
func run(t *testing.T, cfg nodes.Config) {
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { nodes.Run(ctx, cfg) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

const one = "knd01m7y23z9me5h9rh8r505a17vz"

// fixture is a shard with an API server that can be down.
type fixture struct {
	*testing.T
	*machines
	api  *fake.Clientset
	mu   sync.Mutex
	down error
	log  bytes.Buffer // only read while all goroutines wait
}

// newFixture keeps Nodes for a shard's machines, every ten seconds.
func newFixture(t *testing.T, down error, vms ...provider.VM) *fixture {
	f := &fixture{T: t, machines: newMachines(vms...), api: fake.NewClientset(), down: down}
	run(t, nodes.Config{
		API: func() (kubernetes.Interface, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.api, f.down
		},
		Machines: f.machines, Scope: provider.Scope{ClusterID: "c", Shard: "a"}, Kind: "process", Interval: 10 * time.Second,
		Now: time.Now, Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
	})
	return f
}

// pass lets time pass, and waits until everything due is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) node(name string) *corev1.Node {
	f.Helper()
	n, err := f.api.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *fixture) lease(name string) *coordinationv1.Lease {
	f.Helper()
	l, err := f.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return l
}

func (f *fixture) gone(name string) bool {
	_, err := f.api.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func machine() provider.VM {
	return provider.VM{
		ID: one, ProviderID: "p1", State: provider.StateRunning, Hostname: "host",
		Tags: map[string]string{provider.TagGroup: "web"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
}

// TestNode: a machine's Node is complete, and exists as long as the machine.
func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, machine())
		pass(0)
		n := f.node(one)
		if n.Spec.ProviderID != "process:///p1" {
			t.Errorf("provider id %q", n.Spec.ProviderID)
		}
		for label, want := range map[string]string{
			"nstance.dev/cluster": "c", "nstance.dev/shard": "a", "nstance.dev/group": "web", corev1.LabelHostname: "host",
		} {
			if n.Labels[label] != want {
				t.Errorf("label %s is %q, want %q", label, n.Labels[label], want)
			}
		}
		want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "host"}}
		if !slices.Equal(n.Status.Addresses, want) {
			t.Errorf("addresses %v, want %v", n.Status.Addresses, want)
		}
		if !ready(*n) || !well(*n) || n.Status.Conditions[0].Reason != "MachineRuns" {
			t.Errorf("conditions %+v", n.Status.Conditions)
		}
		if pods := n.Status.Allocatable.Pods().Value(); pods != 110 {
			t.Errorf("room for %d pods", pods)
		}
		first := f.lease(one).Spec
		if *first.HolderIdentity != one || *first.LeaseDurationSeconds != 40 {
			t.Errorf("lease %+v", first)
		}
		pass(10 * time.Second)
		if last := f.lease(one).Spec.RenewTime; last.Sub(first.RenewTime.Time) != 10*time.Second {
			t.Errorf("renewed at %v and %v", first.RenewTime, last)
		}

		stopped := machine()
		stopped.State = provider.StateStopped
		f.set(stopped) // noticed at once
		synctest.Wait()
		if !f.gone(one) {
			t.Error("the node of a machine that stopped is there")
		}
	})
}

// TestNodeFollows its machine's address, and reverts other changes.
func TestNodeFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, machine())
		pass(0)
		moved := machine()
		moved.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
		f.set(moved)
		synctest.Wait()
		want := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}
		if n := f.node(one); !slices.Contains(n.Status.Addresses, want) || len(n.Status.Addresses) != 2 {
			t.Errorf("addresses %v, want %v among two", n.Status.Addresses, want)
		}

		status := func(s corev1.ConditionStatus) {
			n := f.node(one)
			n.Status.Conditions[0].Status = s
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}, {Key: "own"}}
			if _, err := f.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		status(corev1.ConditionUnknown) // as the node lifecycle controller does
		pass(10 * time.Second)
		n := f.node(one)
		if n.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Errorf("conditions %+v", n.Status.Conditions)
		}
		if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "own" {
			t.Errorf("taints %v, want the one that is not of new nodes", n.Spec.Taints)
		}
		status(corev1.ConditionFalse) // as an experiment by hand would
		pass(10 * time.Second)
		n = f.node(one)
		if n.Status.Conditions[0].Status != corev1.ConditionFalse {
			t.Errorf("what was set by hand was taken back: %+v", n.Status.Conditions)
		}
		n.Status.Conditions = n.Status.Conditions[:1] // as this program's earlier versions set them
		if _, err := f.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if n := f.node(one); !well(*n) {
			t.Errorf("conditions %+v", n.Status.Conditions)
		}
	})
}

// well reports whether a Node has the conditions that Cluster API wants of a ready Machine's.
func well(n corev1.Node) bool {
	has := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range n.Status.Conditions {
		has[c.Type] = c.Status
	}
	return maps.Equal(has, map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	})
}

// TestAnotherShardsNode with the machine's name is not changed; other machines still get theirs.
func TestAnotherShardsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const two = "knd01m7y23z9me5h9rh8r505a17w0"
		f := newFixture(t, errors.New("down"))
		theirs := &corev1.Node{}
		theirs.Name, theirs.Labels = one, map[string]string{"nstance.dev/cluster": "c", "nstance.dev/shard": "b"}
		if _, err := f.api.CoreV1().Nodes().Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.up()
		f.set(machine(), provider.VM{ID: two, State: provider.StateRunning})
		synctest.Wait()
		if n := f.node(one); n.Labels["nstance.dev/shard"] != "b" || n.Spec.ProviderID != "" {
			t.Errorf("it is taken away: %v", n.Labels)
		}
		if !ready(*f.node(two)) {
			t.Error("the other machine's node is not ready")
		}
		if !strings.Contains(f.log.String(), `label nstance.dev/shard is \"b\", want \"a\"`) {
			t.Errorf("the log says nothing of it: %s", &f.log)
		}
		f.set()
		synctest.Wait()
		if f.gone(one) || !f.gone(two) {
			t.Errorf("gone: another shard's %t, its own %t", f.gone(one), f.gone(two))
		}
	})
}

func (f *fixture) up() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = nil
}

// TestAPIServerThatComesLater gets its Nodes a second later, and is logged in two lines.
func TestAPIServerThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, errors.New("no such file"), machine())
		pass(time.Minute)
		f.up()
		pass(time.Second)
		if !ready(*f.node(one)) {
			t.Error("the node is not ready")
		}
		lines := strings.Split(strings.TrimSpace(f.log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `msg="nodes don't follow the machines" shard=a error="no such file"`) ||
			!strings.Contains(lines[1], "nodes follow the machines again") {
			t.Errorf("log: %s", &f.log)
		}
	})
}
