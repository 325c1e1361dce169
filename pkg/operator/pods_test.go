package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// asked records the encodings that were requested for lists of the pods without a node.
type asked struct {
	next http.RoundTripper
	mu   *sync.Mutex
	all  *[]string
}

func (a asked) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/pods") && q.URL.Query().Get("fieldSelector") == "spec.nodeName=" {
		a.mu.Lock()
		*a.all = append(*a.all, q.Header.Get("Accept"))
		a.mu.Unlock()
	}
	return a.next.RoundTrip(q)
}

// TestWaitingPodsAreTold that there is no capacity for their instances, by an operator that reads
// only the necessary part of other pods.
func TestWaitingPodsAreTold(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	var mu sync.Mutex
	var lists []string
	f.rest = rest.CopyConfig(f.rest)
	f.rest.Wrap(func(next http.RoundTripper) http.RoundTripper { return asked{next: next, mu: &mu, all: &lists} })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "waits", Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: "web"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	if err := f.plane.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.shards.Shard("one").AddGroup("web", 0, "default")
	f.shards.Shard("one").AllowPods("web", &nstancev1.OnDemand{Namespaces: []string{f.namespace}, Max: 1})
	p := f.start()
	shardstest.Eventually(t, "an instance is asked for", func() bool { return len(f.shards.Shard("one").Instances("web")) == 1 })
	planetest.Eventually(t, planetest.Patience, "the pod is told", func(ctx context.Context) error {
		// Repeated, since the first may come before the cache shows for which pod the instance is.
		f.shards.Shard("one").Problem("QuotaUsedUp", "web", "", "no more vCPU")
		var all eventsv1.EventList
		if err := f.plane.Client.List(ctx, &all, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Regarding.Kind == "Pod" && e.Regarding.Name == pod.Name && e.Reason == "QuotaUsedUp" {
				return nil
			}
		}
		return fmt.Errorf("there are %d other events", len(all.Items))
	})
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lists) == 0 {
		t.Error("the pods that wait were not looked for")
	}
	for _, as := range lists {
		if !strings.Contains(as, "as=PartialObjectMetadata") {
			t.Errorf("pods were asked for as %s", as)
		}
	}
}
