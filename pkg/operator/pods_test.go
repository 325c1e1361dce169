package operator_test

import (
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
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// asked notes as what lists of the pods without a node were asked for.
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

// TestWaitingPodsAreTold that there is no room for their instances, by an operator that
// reads no more of all pods than it needs for that.
func TestWaitingPodsAreTold(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	var mu sync.Mutex
	var lists []string
	w.rest = rest.CopyConfig(w.rest)
	w.rest.Wrap(func(next http.RoundTripper) http.RoundTripper { return asked{next: next, mu: &mu, all: &lists} })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "waits", Annotations: map[string]string{v1beta1.AnnotationOnDemandGroup: "web"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	if err := w.plane.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.shards.Shard("one").AddGroup("web", 0, "default")
	w.shards.Shard("one").Problem("QuotaUsedUp", "web", "", "no more vCPU")
	p := w.start()
	shardstest.Eventually(t, "the pod is told", func() bool {
		var all eventsv1.EventList
		if err := w.plane.Client.List(t.Context(), &all, client.InNamespace(w.namespace)); err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Items {
			if e.Regarding.Kind == "Pod" && e.Regarding.Name == pod.Name && e.Reason == "QuotaUsedUp" {
				return true
			}
		}
		return false
	})
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lists) == 0 {
		t.Error("nobody looked for the pods that wait")
	}
	for _, as := range lists {
		if !strings.Contains(as, "as=PartialObjectMetadata") {
			t.Errorf("pods were asked for as %s", as)
		}
	}
}
