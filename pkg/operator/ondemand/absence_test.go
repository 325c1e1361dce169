package ondemand_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/operator/ondemand"
)

// staleClient is a client with a stale cache, which has one pod or none, while the API server
// has another, or none, or does not respond. The cluster has one Machine, created for a pod.
type staleClient struct {
	client.Client

	cached, live types.UID // of the pod; empty: there is none
	err          error     // of reads from the API server
	podUID       types.UID
	deleted      int
}

func (*staleClient) missing() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "job")
}

func (l *staleClient) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	uid := types.UID("cluster")
	switch o := o.(type) {
	case *clusterv1.Machine:
		uid = "machine"
		o.Labels = map[string]string{ondemand.LabelPodUID: string(l.podUID)}
	case *metav1.PartialObjectMetadata:
		uid = l.cached
	case *corev1.Pod:
		if uid = l.live; l.err != nil {
			return l.err
		}
	}
	if uid == "" {
		return l.missing()
	}
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	o.SetUID(uid)
	return nil
}

func (l *staleClient) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if machines, ok := list.(*clusterv1.MachineList); ok {
		machines.Items = []clusterv1.Machine{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "on-demand", UID: "machine",
			Labels: map[string]string{ondemand.LabelPodUID: string(l.podUID)}, Annotations: map[string]string{ondemand.AnnotationPod: "pods/job"},
		}}}
	}
	return nil
}

func (l *staleClient) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	l.deleted++
	return nil
}

var errUnavailable = errors.New("the API server does not respond")

// TestPodMissingFromCache: a Machine is deleted if the API server, not just the cache, has no
// pod with its UID.
func TestPodMissingFromCache(t *testing.T) {
	for name, test := range map[string]struct {
		staleClient
		want    int
		wantErr error
	}{
		"missing only from the cache":           {staleClient: staleClient{live: "new", podUID: "new"}},
		"earlier pod of that name in the cache": {staleClient: staleClient{cached: "old", live: "new", podUID: "new"}},
		"API server unavailable":                {staleClient: staleClient{err: errUnavailable, podUID: "new"}, wantErr: errUnavailable},
		"deleted":                               {staleClient: staleClient{podUID: "new"}, want: 1},
		"later pod of that name":                {staleClient: staleClient{cached: "newer", live: "newer", podUID: "new"}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &test.staleClient
			r := &ondemand.Reconciler{
				Client: l, Reader: l, Workload: uncached{l}, Recorder: events.NewFakeRecorder(10),
				Cluster: types.NamespacedName{Namespace: "ns", Name: "c"}, Tenant: "default", Now: time.Now, Random: rand.Reader,
			}
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "pods", Name: "job"}})
			if !errors.Is(err, test.wantErr) || l.deleted != test.want {
				t.Errorf("%d Machines deleted, %v; want %d, %v", l.deleted, err, test.want, test.wantErr)
			}
		})
	}
}
