package workload_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/workload"
)

func TestLocal(t *testing.T) {
	f := newFixture(t, false, &corev1.Node{})
	n := f.node(t, "a")
	f.awaitNode(t, n)
	eventually(t, "the controller gets an event", func() bool { return f.count(n.Name) > 0 })
	if err := f.cluster.Err(); err != nil {
		t.Errorf("Err() = %v, want none", err)
	}
	if none, err := f.cluster.NodeOf(t.Context(), workload.Identity{ProviderID: id("unknown")}); err != nil || none != nil {
		t.Errorf("an unknown node: %v, %v; want neither", none, err)
	}
	if none, err := f.cluster.NodeOf(t.Context(), workload.Identity{}); err != nil || none != nil {
		t.Errorf("no provider ID: %v, %v; want neither", none, err)
	}
}

// Two Nodes with the same provider ID are ambiguous, and neither is returned until the other is
// gone.
func TestTwoNodesWithOneProviderID(t *testing.T) {
	f := newFixture(t, false, &corev1.Node{})
	n := f.node(t, "a")
	f.awaitNode(t, n)
	second := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.ns + "-b"}}
	second.Spec.ProviderID = n.Spec.ProviderID
	f.must(t, f.plane.Client.Create(t.Context(), second))
	eventually(t, "both are cached", func() bool {
		all, err := f.cluster.NodesByProviderID(t.Context(), n.Spec.ProviderID)
		return err == nil && len(all) == 2
	})
	one, err := f.cluster.NodeOf(t.Context(), workload.Identity{ProviderID: n.Spec.ProviderID})
	if ambiguous := new(workload.AmbiguousError); one != nil || !errors.As(err, &ambiguous) || len(ambiguous.Nodes) != 2 {
		t.Errorf("got %v, %v; want an error with both", one, err)
	}
	f.must(t, f.plane.Client.Delete(t.Context(), second))
	f.awaitNode(t, n)
}

func TestSecretArrivesLate(t *testing.T) {
	f := newFixture(t, true, &corev1.Node{})
	n := f.node(t, "a")
	var nodes corev1.NodeList
	for name, err := range map[string]error{
		"Client":   f.cluster.Client().List(t.Context(), &nodes),
		"Reader":   f.cluster.Reader().List(t.Context(), &nodes),
		"Status":   f.cluster.Client().Status().Update(t.Context(), n),
		"Node":     second(f.cluster.NodeOf(t.Context(), workload.Identity{ProviderID: n.Spec.ProviderID})),
		"Clients":  second(f.cluster.Clientset()),
		"RESTConf": second(f.cluster.RESTConfig()),
	} {
		if !errors.Is(err, workload.ErrNotConnected) {
			t.Errorf("%s without a connection: %v, want ErrNotConnected", name, err)
		}
	}
	if err := f.cluster.Err(); err == nil || !strings.Contains(err.Error(), secretName) {
		t.Errorf("Err() = %v, want the Secret's name", err)
	}
	f.secret(t, kubeconfig(t, f.plane.Config, "late"))
	f.awaitNode(t, n)
	eventually(t, "the controller gets an event", func() bool { return f.count(n.Name) > 0 })
	eventually(t, "the error is over", func() bool { return f.cluster.Err() == nil })
}

func second[T any](_ T, err error) error { return err }

// Changes between the end of the old connection and the start of the new one cause events: a
// new node, and a deleted one.
func TestSecretChanges(t *testing.T) {
	f := newFixture(t, true, &corev1.Node{})
	proxy, cut := proxied(t, f.plane.Config)
	kept, removed := f.node(t, "kept"), f.node(t, "removed")
	f.secret(t, kubeconfig(t, proxy, "first"))
	f.awaitNode(t, removed)
	eventually(t, "the controller gets an event", func() bool { return f.count(kept.Name) > 0 && f.count(removed.Name) > 0 })

	cut()
	before := f.count(removed.Name)
	f.must(t, f.plane.Client.Delete(t.Context(), removed))
	meanwhile := f.node(t, "meanwhile")
	f.secret(t, kubeconfig(t, f.plane.Config, "second"))
	f.awaitNode(t, meanwhile)
	eventually(t, "the controller gets an event of the deleted node", func() bool { return f.count(removed.Name) > before })
	eventually(t, "the controller gets an event of the new node", func() bool { return f.count(meanwhile.Name) > 0 })
	after := f.node(t, "after")
	eventually(t, "events continue", func() bool { return f.count(after.Name) > 0 })
}

func TestBrokenKubeconfig(t *testing.T) {
	f := newFixture(t, true, &corev1.Node{})
	n := f.node(t, "a")
	f.secret(t, []byte("neither: here\nnor: there\n"))
	eventually(t, "the kubeconfig is reported", func() bool {
		err := f.cluster.Err()
		return err != nil && strings.Contains(err.Error(), "kubeconfig")
	})
	f.secret(t, kubeconfig(t, f.plane.Config, "good"))
	f.awaitNode(t, n)
	eventually(t, "no error is reported", func() bool { return f.cluster.Err() == nil })

	// An invalid kubeconfig does not end the existing connection.
	f.secret(t, nil)
	eventually(t, "the empty kubeconfig is reported", func() bool { return f.cluster.Err() != nil })
	f.awaitNode(t, n)
	b := f.node(t, "b")
	eventually(t, "events continue", func() bool { return f.count(b.Name) > 0 })
}

// Pods are watched as metadata in all namespaces, and read in full, uncached.
func TestPods(t *testing.T) {
	pods := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	for _, external := range []bool{false, true} {
		f := newFixture(t, external, pods)
		if external {
			f.secret(t, kubeconfig(t, f.plane.Config, "pods"))
			eventually(t, "it is connected", func() bool { return f.cluster.Err() == nil })
		}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: f.ns},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		f.must(t, f.cluster.Client().Create(t.Context(), p))
		var back corev1.Pod
		f.must(t, f.cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(p), &back))
		var all corev1.PodList
		f.must(t, f.cluster.Client().List(t.Context(), &all, client.MatchingFields{"spec.nodeName": "unknown"}))
		eventually(t, "the controller gets an event", func() bool { return f.count(p.Name) > 0 })
	}
}
