package nodes_test

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/dev/nodes"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/provider"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// kubeconfig writes an administrator's kubeconfig.
func kubeconfig(t *testing.T, plane *planetest.Plane, path string) {
	t.Helper()
	if err := os.WriteFile(path, plane.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// follow keeps Nodes in a real API server for machines.
func follow(t *testing.T, path, cluster string, m *machines) {
	run(t, nodes.Config{
		API: nodes.Kubeconfig(path), Machines: m, Scope: provider.Scope{ClusterID: cluster, Shard: "a"}, Kind: "process",
		Interval: 100 * time.Millisecond, Now: time.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

func list(t *testing.T, api client.Client, cluster string) map[string]corev1.Node {
	t.Helper()
	var list corev1.NodeList
	if err := api.List(t.Context(), &list, client.MatchingLabels{"nstance.dev/cluster": cluster}); err != nil {
		t.Fatal(err)
	}
	found := map[string]corev1.Node{}
	for _, n := range list.Items {
		found[n.Name] = n
	}
	return found
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestNodesFollowMachines(t *testing.T) {
	plane := shared.Plane(t)
	const cluster = "follow"
	one := provider.VM{
		ID: "knd01m7y23z9me5h9rh8r505a17vz", ProviderID: "p1", State: provider.StateRunning, Hostname: "one",
		Tags: map[string]string{provider.TagGroup: "web"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	two := provider.VM{ID: "knd01m7y23z9me5h9rh8r505a17w0", ProviderID: "p2", State: provider.StatePending}
	m := newMachines(one, two)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	follow(t, path, cluster, m)
	if _, err := os.Stat(path); err == nil {
		t.Fatal("there is a kubeconfig already")
	}
	kubeconfig(t, plane, path) // the API server starts after the machines

	eventually(t, "the node of the machine that runs", func() bool {
		have := list(t, plane.Client, cluster)
		return len(have) == 1 && ready(have[string(one.ID)])
	})
	two.State = provider.StateRunning
	m.set(one, two)
	eventually(t, "two nodes that are ready", func() bool {
		have := list(t, plane.Client, cluster)
		return len(have) == 2 && ready(have[string(one.ID)]) && ready(have[string(two.ID)])
	})
	n := list(t, plane.Client, cluster)[string(one.ID)]
	if n.Spec.ProviderID != "process:///p1" || n.Labels["nstance.dev/group"] != "web" || n.Labels["kubernetes.io/hostname"] != "one" {
		t.Errorf("%+v %+v", n.Spec, n.Labels)
	}
	if v := n.Status.NodeInfo.KubeletVersion; !strings.HasPrefix(v, "v1.") {
		t.Errorf("the kubelet's version is %q", v)
	}
	if want := (corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}); !slices.Contains(n.Status.Addresses, want) {
		t.Errorf("addresses %v", n.Status.Addresses)
	}
	renewed := func() time.Time {
		var lease coordinationv1.Lease
		key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: string(one.ID)}
		if err := plane.Client.Get(t.Context(), key, &lease); err != nil || lease.Spec.RenewTime == nil {
			return time.Time{}
		}
		return lease.Spec.RenewTime.Time
	}
	first := renewed()
	eventually(t, "a sign of life", func() bool { return renewed().After(first) })

	m.set(two)
	eventually(t, "the node of a machine that is gone is gone", func() bool {
		have := list(t, plane.Client, cluster)
		return len(have) == 1 && have[string(two.ID)].Name != ""
	})
	left := list(t, plane.Client, cluster)[string(two.ID)]
	if err := plane.Client.Delete(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a node that was removed by mistake is back", func() bool {
		return ready(list(t, plane.Client, cluster)[string(two.ID)])
	})
	two.State = provider.StateStopped
	m.set(two)
	eventually(t, "the node of a machine that stopped is gone", func() bool { return len(list(t, plane.Client, cluster)) == 0 })
}

// ready reports whether pods can be scheduled to a Node.
func ready(n corev1.Node) bool {
	return len(n.Spec.Taints) == 0 && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// TestAnotherShardsNodesStay, like those without a shard.
func TestAnotherShardsNodesStay(t *testing.T) {
	plane := shared.Plane(t)
	const cluster = "others"
	other := &corev1.Node{}
	other.Name, other.Labels = "knd01m7y23z9me5h9rh8r505a17w1", map[string]string{"nstance.dev/cluster": cluster, "nstance.dev/shard": "b"}
	if err := plane.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	m := newMachines(provider.VM{ID: "knd01m7y23z9me5h9rh8r505a17w2", ProviderID: "p", State: provider.StateRunning})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig(t, plane, path)
	follow(t, path, cluster, m)
	eventually(t, "both nodes", func() bool { return len(list(t, plane.Client, cluster)) == 2 })
	m.set()
	eventually(t, "its own node is gone", func() bool { return len(list(t, plane.Client, cluster)) == 1 })
	if _, there := list(t, plane.Client, cluster)[other.Name]; !there {
		t.Fatal("another shard's node was removed")
	}
}

// TestANodeThatLostItsLabels gets them back, and its lease is still renewed.
func TestANodeThatLostItsLabels(t *testing.T) {
	plane := shared.Plane(t)
	const cluster, id = "labels", "knd01m7y23z9me5h9rh8r505a17w3"
	m := newMachines(provider.VM{ID: id, ProviderID: "p3", State: provider.StateRunning})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig(t, plane, path)
	follow(t, path, cluster, m)
	eventually(t, "the node", func() bool { return ready(list(t, plane.Client, cluster)[id]) })
	before := list(t, plane.Client, cluster)[id]
	bare := before.DeepCopy()
	bare.Labels = nil
	if err := plane.Client.Patch(t.Context(), bare, client.MergeFrom(&before)); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	eventually(t, "its labels", func() bool { return list(t, plane.Client, cluster)[id].UID == before.UID })
	eventually(t, "a sign of life", func() bool {
		var lease coordinationv1.Lease
		err := plane.Client.Get(t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: id}, &lease)
		return err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(lost)
	})

	// A Node that belongs to another shard by now is not changed.
	before = list(t, plane.Client, cluster)[id]
	theirs := before.DeepCopy()
	theirs.Labels["nstance.dev/shard"] = "b"
	if err := plane.Client.Patch(t.Context(), theirs, client.MergeFrom(&before)); err != nil {
		t.Fatal(err)
	}
	m.set()
	m.set(provider.VM{ID: id, ProviderID: "p3", State: provider.StateRunning})
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n := list(t, plane.Client, cluster)[id]; n.Labels["nstance.dev/shard"] != "b" || n.UID != before.UID {
			t.Fatalf("it is taken away: %v", n.Labels)
		}
	}
}
