package ondemand_test

import (
	"context"
	"errors"
	"testing"

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

// late is a cluster whose cache is behind: it shows one pod, or none, and the API server
// has another, or none, or does not answer. It has one Machine, made for a pod.
type late struct {
	client.Client

	cached, real types.UID // of the pod; empty: there is none
	refuse       error
	madeFor      types.UID
	deleted      int
}

func (*late) missing() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "job")
}

func (l *late) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	uid := types.UID("cluster")
	switch o.(type) {
	case *metav1.PartialObjectMetadata:
		uid = l.cached
	case *corev1.Pod:
		if uid = l.real; l.refuse != nil {
			return l.refuse
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

func (l *late) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if machines, ok := list.(*clusterv1.MachineList); ok {
		machines.Items = []clusterv1.Machine{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "on-demand", UID: "machine",
			Labels: map[string]string{ondemand.LabelPodUID: string(l.madeFor)}, Annotations: map[string]string{ondemand.AnnotationPod: "pods/job"},
		}}}
	}
	return nil
}

func (l *late) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	l.deleted++
	return nil
}

var errSilent = errors.New("the API server does not answer")

// TestAPodTheCacheLacks: a Machine goes when the API server says that its pod is gone, and
// not when the cache has not seen the pod yet.
func TestAPodTheCacheLacks(t *testing.T) {
	for name, test := range map[string]struct {
		late
		want int
		err  error
	}{
		"the cache lacks it":           {late: late{real: "new", madeFor: "new"}},
		"the cache has its forerunner": {late: late{cached: "old", real: "new", madeFor: "new"}},
		"the server is silent":         {late: late{refuse: errSilent, madeFor: "new"}, err: errSilent},
		"it is gone":                   {late: late{madeFor: "new"}, want: 1},
		"another took its name":        {late: late{cached: "newer", real: "newer", madeFor: "new"}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &test.late
			r := &ondemand.Reconciler{
				Client: l, Reader: l, Workload: past{l}, Recorder: events.NewFakeRecorder(10),
				Cluster: types.NamespacedName{Namespace: "ns", Name: "c"},
			}
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "pods", Name: "job"}})
			if !errors.Is(err, test.err) || l.deleted != test.want {
				t.Errorf("%d Machines are deleted, %v; want %d, %v", l.deleted, err, test.want, test.err)
			}
		})
	}
}
