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
	r := newRoom(t, false, &corev1.Node{})
	n := r.node(t, "a")
	r.finds(t, n)
	eventually(t, "the controller is told", func() bool { return r.count(n.Name) > 0 })
	if err := r.cluster.Err(); err != nil {
		t.Errorf("Err() = %v, want none", err)
	}
	if none, err := r.cluster.NodeByProviderID(t.Context(), id("nobody")); err != nil || none != nil {
		t.Errorf("a node that nobody has: %v, %v; want neither", none, err)
	}
	if none, err := r.cluster.NodeByProviderID(t.Context(), ""); err != nil || none != nil {
		t.Errorf("no id at all: %v, %v; want neither", none, err)
	}
}

func TestSecretArrivesLate(t *testing.T) {
	r := newRoom(t, true, &corev1.Node{})
	n := r.node(t, "a")
	var nodes corev1.NodeList
	for name, err := range map[string]error{
		"Client":   r.cluster.Client().List(t.Context(), &nodes),
		"Reader":   r.cluster.Reader().List(t.Context(), &nodes),
		"Status":   r.cluster.Client().Status().Update(t.Context(), n),
		"Node":     second(r.cluster.NodeByProviderID(t.Context(), n.Spec.ProviderID)),
		"Clients":  second(r.cluster.Clientset()),
		"RESTConf": second(r.cluster.RESTConfig()),
	} {
		if !errors.Is(err, workload.ErrNotConnected) {
			t.Errorf("%s without a connection: %v, want ErrNotConnected", name, err)
		}
	}
	if err := r.cluster.Err(); err == nil || !strings.Contains(err.Error(), secretName) {
		t.Errorf("Err() = %v, want the Secret's name", err)
	}
	r.secret(t, kubeconfig(t, r.plane.Config, "late"))
	r.finds(t, n)
	eventually(t, "the controller is told", func() bool { return r.count(n.Name) > 0 })
	if err := r.cluster.Err(); err != nil {
		t.Errorf("Err() = %v, want none", err)
	}
}

func second[T any](_ T, err error) error { return err }

// What happens while the old connection is dead and the new one is not yet made must
// be told too: a node that is new, and one that is gone.
func TestSecretChanges(t *testing.T) {
	r := newRoom(t, true, &corev1.Node{})
	by, cut := detour(t, r.plane.Config)
	stays, goes := r.node(t, "stays"), r.node(t, "goes")
	r.secret(t, kubeconfig(t, by, "first"))
	r.finds(t, goes)
	eventually(t, "the controller is told", func() bool { return r.count(stays.Name) > 0 && r.count(goes.Name) > 0 })

	cut()
	before := r.count(goes.Name)
	r.must(t, r.plane.Client.Delete(t.Context(), goes))
	meanwhile := r.node(t, "meanwhile")
	r.secret(t, kubeconfig(t, r.plane.Config, "second"))
	r.finds(t, meanwhile)
	eventually(t, "the controller is told of the node that went", func() bool { return r.count(goes.Name) > before })
	eventually(t, "the controller is told of the new node", func() bool { return r.count(meanwhile.Name) > 0 })
	after := r.node(t, "after")
	eventually(t, "events go on", func() bool { return r.count(after.Name) > 0 })
}

func TestBrokenKubeconfig(t *testing.T) {
	r := newRoom(t, true, &corev1.Node{})
	n := r.node(t, "a")
	r.secret(t, []byte("neither: here\nnor: there\n"))
	eventually(t, "the kubeconfig is reported", func() bool {
		err := r.cluster.Err()
		return err != nil && strings.Contains(err.Error(), "kubeconfig")
	})
	r.secret(t, kubeconfig(t, r.plane.Config, "good"))
	r.finds(t, n)
	eventually(t, "no error is left", func() bool { return r.cluster.Err() == nil })

	// The old connection is better than none.
	r.secret(t, nil)
	eventually(t, "the empty kubeconfig is reported", func() bool { return r.cluster.Err() != nil })
	r.finds(t, n)
	b := r.node(t, "b")
	eventually(t, "events go on", func() bool { return r.count(b.Name) > 0 })
}

// Pods are watched as metadata, of all namespaces, and read whole past the cache.
func TestPods(t *testing.T) {
	pods := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	for _, external := range []bool{false, true} {
		r := newRoom(t, external, pods)
		if external {
			r.secret(t, kubeconfig(t, r.plane.Config, "pods"))
			eventually(t, "it is connected", func() bool { return r.cluster.Err() == nil })
		}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: r.ns},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		r.must(t, r.cluster.Client().Create(t.Context(), p))
		var back corev1.Pod
		r.must(t, r.cluster.Client().Get(t.Context(), client.ObjectKeyFromObject(p), &back))
		var all corev1.PodList
		r.must(t, r.cluster.Client().List(t.Context(), &all, client.MatchingFields{"spec.nodeName": "nobody"}))
		eventually(t, "the controller is told", func() bool { return r.count(p.Name) > 0 })
	}
}
