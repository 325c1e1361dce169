package ondemand_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/ondemand"
)

// process is an operator's controllers for pods, which a test calls directly.
type process struct {
	*fakeCluster
	controllers map[string]reconcile.Reconciler
	events      chan string
}

func (w *fakeCluster) process(now *time.Time) *process {
	w.Helper()
	pods, clock := w.operator("default"), func() time.Time { return *now }
	pods.Now = clock
	p := &process{fakeCluster: w, events: pods.events}
	recorder := &events.FakeRecorder{Events: p.events}
	p.controllers = map[string]reconcile.Reconciler{
		"pods": pods.Reconciler,
		"machines": &machine.Reconciler{
			Client: w.api, Reader: w.api, Shards: w.shards.Set, Recorder: recorder, Random: rand.Reader,
			Jitter: func() float64 { return 0 }, Pods: pods.Reconciler, Now: clock,
		},
		"health": &ondemand.Health{
			Client: w.api, Workload: uncached{w.api}, Shards: w.shards.Set, Recorder: recorder, Now: clock, NodeStartup: 10 * time.Minute,
		},
	}
	return p
}

// settle reconciles the pods and their machines until no shard is called any more.
func (p *process) settle(pods []string) {
	p.Helper()
	for calls := -1; calls != p.calls(); {
		calls = p.calls()
		for _, name := range pods {
			p.reconcile("pods", client.ObjectKey{Namespace: "ci", Name: name})
		}
		p.shards.Heard()
		for _, m := range p.machines("default") {
			for _, of := range []string{"machines", "health"} {
				p.reconcile(of, client.ObjectKeyFromObject(&m))
			}
		}
	}
}

func (p *process) reconcile(of string, key client.ObjectKey) {
	p.Helper()
	if _, err := p.controllers[of].Reconcile(p.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		p.Fatalf("reconcile %s %s: %v", of, key, err)
	}
}

func (p *process) calls() int {
	a := p.shards.Shard("a")
	return len(a.Calls("CreateInstance")) + len(a.Calls("DeleteInstance"))
}

// TestCostOfPodsThatCanNeverHaveMachines: after five minutes, ten such pods cost at most four
// requests and events a minute together, even if the operator is restarted every few minutes and
// all waits are as short as they can be.
func TestCostOfPodsThatCanNeverHaveMachines(t *testing.T) {
	for name, refuse := range map[string]func(w *fakeCluster){
		"refused by the provider": func(w *fakeCluster) { w.shards.Shard("a").RefuseAll("no such image") },
		"refused by the shard": func(w *fakeCluster) {
			w.shards.Shard("a").Fail("CreateInstance", status.Error(codes.FailedPrecondition, "not allowed"), -1)
		},
		"no room": func(w *fakeCluster) {
			w.shards.Shard("a").Fail("CreateInstance", status.Error(codes.ResourceExhausted, "no room"), -1)
		},
		"not allowed by the group": func(w *fakeCluster) { w.allow("a", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, "a")
			w.api = fake.NewClientBuilder().WithScheme(w.api.Scheme()).
				WithStatusSubresource(&v1beta1.NstanceMachine{}, &clusterv1.Machine{}).Build()
			w.allow("a", anywhere(100))
			refuse(w)
			w.namespace("ci", nil)
			var pods []string
			for n := range 10 {
				pods = append(pods, fmt.Sprintf("p%d", n))
				w.pod("ci", pods[n])
			}
			now := time.Now()
			p, cost := w.process(&now), 0
			const step = 20 * time.Second
			for passed := time.Duration(0); passed < 25*time.Minute; passed += step {
				if passed == 5*time.Minute {
					t.Logf("%d requests and %d events in the first 5 minutes", p.calls(), len(p.events))
					cost = -p.calls()
					p.events = drained(p.events)
				}
				if passed%(7*time.Minute) == 0 {
					cost += len(p.events)
					p = w.process(&now)
				}
				p.settle(pods)
				now = now.Add(step)
			}
			if cost += p.calls() + len(p.events); cost > 20*4 {
				t.Errorf("%d requests and events in 20 minutes: want at most 4 a minute", cost)
			}
			t.Logf("%d in the next 20", cost)
		})
	}
}

// drained empties a channel.
func drained(events chan string) chan string {
	for len(events) > 0 {
		<-events
	}
	return events
}
