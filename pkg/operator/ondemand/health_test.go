package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/ondemand"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// patient is a cluster with a pod whose NstanceMachine has an instance that runs, and a Health.
type patient struct {
	*fakeCluster
	health *ondemand.Health
	pod    *corev1.Pod
	events chan string
	now    time.Time
	// live is what the API server of the pods has, if not the same as the cache; err is its
	// error.
	live client.Client
	err  error
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	w := newFakeCluster(t, "a")
	w.allow("a", anywhere(5))
	w.namespace("ci", nil)
	p := &patient{fakeCluster: w, now: time.Now()}
	p.pod = w.pod("ci", "job", func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(p.now) })
	w.operator("default").reconcile("ci", "job")
	p.restart()
	p.change(func(m *v1beta1.NstanceMachine) {
		i, err := w.shards.Set.CreateInstance(t.Context(), "a", &nstancev1.CreateInstanceRequest{Group: "web", Namespace: "ci"})
		if err != nil {
			t.Fatal(err)
		}
		m.Spec.InstanceID = v1beta1.InstanceID(i.GetId())
		w.shards.Heard()
		m.Spec.ProviderID = p.instance(m).GetNodeProviderId()
		m.Status.Initialization.Provisioned = new(true)
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: p.machine().UID, Controller: new(true),
		}}
	})
	return p
}

// restart replaces the Health, as a new process would.
func (p *patient) restart() {
	p.events = make(chan string, 100)
	p.health = &ondemand.Health{
		Client: p.api, Workload: split{uncached{p.api}, p}, Shards: p.shards.Set, Recorder: &events.FakeRecorder{Events: p.events},
		Now: func() time.Time { return p.now }, NodeStartup: 10 * time.Minute,
	}
}

// split is a workload cluster whose API server may have something else than the cache.
type split struct {
	uncached
	p *patient
}

func (s split) Reader() client.Reader {
	if s.p.err != nil {
		return broken{s.p.live, s.p.err}
	}
	if s.p.live != nil {
		return s.p.live
	}
	return s.p.api
}

type broken struct {
	client.Reader
	err error
}

func (b broken) List(context.Context, client.ObjectList, ...client.ListOption) error { return b.err }

func (p *patient) infra() *v1beta1.NstanceMachine { return &p.machines("default")[0] }

func (p *patient) instance(m *v1beta1.NstanceMachine) *nstancev1.InstanceStatus {
	return p.shards.Set.Instance("a", string(m.Spec.InstanceID))
}

// machine returns the Machine; nil if it is gone.
func (p *patient) machine() *clusterv1.Machine {
	p.Helper()
	var all clusterv1.MachineList
	if err := p.api.List(p.Context(), &all, client.InNamespace("default")); err != nil {
		p.Fatal(err)
	}
	if len(all.Items) == 0 {
		return nil
	}
	return &all.Items[0]
}

func (p *patient) change(change func(*v1beta1.NstanceMachine)) {
	p.Helper()
	m := p.infra()
	change(m)
	if err := p.api.Update(p.Context(), m); err != nil {
		p.Fatal(err)
	}
}

func (p *patient) reconcile() (time.Duration, error) {
	p.Helper()
	var all v1beta1.NstanceMachineList
	if err := p.api.List(p.Context(), &all, client.InNamespace("default")); err != nil || len(all.Items) != 1 {
		p.Fatalf("%d NstanceMachines, %v", len(all.Items), err)
	}
	result, err := p.health.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[0])})
	return result.RequeueAfter, err
}

// takeEvents reconciles, and returns the events since the last call.
func (p *patient) takeEvents() (all []string) {
	p.Helper()
	if _, err := p.reconcile(); err != nil {
		p.Fatal(err)
	}
	for len(p.events) > 0 {
		all = append(all, <-p.events)
	}
	return all
}

// fail sets the state of a creation that has failed.
func (p *patient) fail(reason, message string) {
	p.Helper()
	p.change(func(m *v1beta1.NstanceMachine) {
		m.Status.Initialization.Provisioned = nil
		m.Status.Creation = &v1beta1.Creation{
			Failures: 1, Reason: reason, Message: message,
			FailureTime: new(metav1.NewTime(p.now)), RetryTime: new(metav1.NewTime(p.now.Add(time.Minute))),
		}
		m.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: "CreateFailed", Message: message},
		}
	})
}

// A pod is told why its machine could not be created: once for each reason and five minutes,
// and not again after a restart.
func TestPodIsToldWhyMachineIsMissing(t *testing.T) {
	p := newPatient(t)
	want := func(words ...string) {
		t.Helper()
		all := p.takeEvents()
		if len(all) != len(words) {
			t.Fatalf("events %q, want %d", all, len(words))
		}
		for n := range all {
			if !strings.HasPrefix(all[n], "Warning OnDemand"+words[n]) {
				t.Errorf("event %q, want %q", all[n], words[n])
			}
		}
	}
	want()
	p.fail(v1beta1.CreationRefused, "no such image")
	want("Refused no such image")
	want()
	p.now = p.now.Add(4 * time.Minute)
	p.fail(v1beta1.CreationRefused, "no such image, again")
	want()
	p.fail(v1beta1.CreationNotRegistered, "look at it")
	want("NotRegistered look at it")
	p.now = p.now.Add(2 * time.Minute)
	p.fail(v1beta1.CreationRefused, "no such image, still")
	want("Refused no such image, still")
	p.now = p.now.Add(10 * time.Minute)
	p.restart()
	want()
	p.change(func(m *v1beta1.NstanceMachine) { // under way, without capacity
		m.Status.Creation.RetryTime = nil
		m.Status.Conditions[0].Reason, m.Status.Conditions[0].Message = "CreateFailing", "subnet full"
		m.Status.Conditions[0].LastTransitionTime = metav1.NewTime(p.now)
	})
	want("CreateFailing shard a could not create the machine yet, and goes on trying: subnet full")
}

// Ten pods that can never have a machine: their events, a minute, after five minutes.
func TestEventsOfPodsThatCanNeverHaveMachines(t *testing.T) {
	p := newPatient(t)
	events := 0
	for minute, failed := range []bool{true, true, false, true, false, false, false, false, false, false, true, false, false, false, false} {
		if failed {
			p.fail(v1beta1.CreationRefused, fmt.Sprintf("no such image, for the time %d", minute))
		}
		if n := len(p.takeEvents()); minute >= 5 {
			events += n
		}
		p.now = p.now.Add(time.Minute)
	}
	if a := float64(events); a > 2 {
		t.Errorf("%v events of a pod in 10 minutes, so %v a minute of ten pods", a, a)
	}
}

// nodeOf returns a Node that is this instance's.
func (p *patient) nodeOf(name, providerID string, ready corev1.ConditionStatus, since time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since),
		}}},
	}
}

// A machine that registered and became no node in time is replaced, but not if it may have a
// node, or if that is not known.
func TestMachineWithoutNodeIsReplaced(t *testing.T) {
	const late = 11 * time.Minute
	for name, c := range map[string]struct {
		after time.Duration // since it registered
		set   func(p *patient)
		want  bool
		err   bool
	}{
		"none":     {after: late, want: true},
		"in time":  {after: 9 * time.Minute},
		"disabled": {after: 100 * time.Hour, set: func(p *patient) { p.health.NodeStartup = 0 }},
		"node with its provider ID": {after: late, set: func(p *patient) {
			p.create(p.nodeOf("x", p.infra().Spec.ProviderID, corev1.ConditionFalse, p.now))
		}},
		"node of its name": {after: late, set: func(p *patient) {
			id := string(p.infra().Spec.InstanceID)
			p.create(p.nodeOf(id+".internal", "k3s://"+id, corev1.ConditionTrue, p.now))
		}},
		"node with its address": {after: late, set: func(p *patient) {
			n := p.nodeOf("x", "k3s://x", corev1.ConditionTrue, p.now)
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: p.instance(p.infra()).GetIps()[0]}}
			p.create(n)
		}},
		"another's node": {after: late, want: true, set: func(p *patient) {
			p.create(p.nodeOf("x", "k3s://x", corev1.ConditionTrue, p.now))
		}},
		"node only at the API server": {after: late, set: func(p *patient) {
			p.live = newFakeCluster(p.T).api
			for _, o := range []client.Object{
				p.nodeOf("x", p.infra().Spec.ProviderID, corev1.ConditionTrue, p.now),
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "job", UID: p.pod.UID}},
			} {
				if err := p.live.Create(p.Context(), o); err != nil {
					p.Fatal(err)
				}
			}
		}},
		"API server does not answer": {after: late, err: true, set: func(p *patient) { p.err = errUnavailable }},
		"it had a node": {after: late, set: func(p *patient) {
			m := p.machine()
			m.Status.NodeRef.Name = "x"
			if err := p.api.Update(p.Context(), m); err != nil {
				p.Fatal(err)
			}
		}},
		"the pod has a node": {after: late, set: func(p *patient) {
			p.pod.Spec.NodeName = "y"
			if err := p.api.Update(p.Context(), p.pod); err != nil {
				p.Fatal(err)
			}
		}},
		"its shard is unreachable": {after: late, set: func(p *patient) {
			p.shards.Shard("a").Stop()
			p.shards.Heard()
		}},
		"it is draining": {after: late, set: func(p *patient) {
			p.shards.Shard("a").Drain(string(p.infra().Spec.InstanceID), "expired", time.Now().Add(time.Hour))
			p.shards.Heard()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.now = p.now.Add(c.after)
			if c.set != nil {
				c.set(p)
			}
			after, err := p.reconcile()
			if (err != nil) != c.err || c.err && !errors.Is(err, errUnavailable) {
				t.Fatal(err)
			}
			if gone := p.machine() == nil; gone != c.want || (len(p.events) == 1) != c.want {
				t.Errorf("the Machine is deleted: %t, with %d events; want %t", gone, len(p.events), c.want)
			}
			if p.health.NodeStartup > 0 && !c.err && (after <= 0 || after > 5*time.Minute) {
				t.Errorf("looks again after %v", after)
			}
			if c.want {
				if e := <-p.events; !strings.Contains(e, "OnDemandNoNode") || !strings.Contains(e, "--provider-id") {
					t.Errorf("event %q", e)
				}
			}
		})
	}
}

// The longer a pod has waited, the longer its next machine may take.
func TestReplacementsBecomeRarer(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0: 10 * time.Minute, 20 * time.Minute: 10 * time.Minute, time.Hour: 30 * time.Minute, 24 * time.Hour: time.Hour,
	} {
		p := newPatient(t)
		p.pod.CreationTimestamp = metav1.NewTime(p.now.Add(-waited))
		if err := p.api.Update(t.Context(), p.pod); err != nil {
			t.Fatal(err)
		}
		p.now = p.now.Add(want - time.Minute)
		if _, err := p.reconcile(); err != nil || p.machine() == nil {
			t.Errorf("waited %v: replaced before %v, %v", waited, want, err)
		}
		p.now = p.now.Add(2 * time.Minute)
		if _, err := p.reconcile(); err != nil || p.machine() != nil {
			t.Errorf("waited %v: not replaced after %v, %v", waited, want, err)
		}
	}
}

// A machine whose kubelet is silent for long is replaced, unless most nodes are.
func TestMachineWithSilentKubeletIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		ready  corev1.ConditionStatus
		silent time.Duration
		others []corev1.ConditionStatus
		want   bool
	}{
		"for long":   {corev1.ConditionUnknown, 11 * time.Minute, []corev1.ConditionStatus{"True"}, true},
		"not long":   {corev1.ConditionUnknown, 9 * time.Minute, []corev1.ConditionStatus{"True"}, false},
		"most are":   {corev1.ConditionUnknown, time.Hour, []corev1.ConditionStatus{"True", "Unknown"}, false},
		"all are":    {corev1.ConditionUnknown, time.Hour, nil, false},
		"not ready":  {corev1.ConditionFalse, time.Hour, []corev1.ConditionStatus{"True"}, false},
		"it reports": {corev1.ConditionTrue, time.Hour, []corev1.ConditionStatus{"True"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.create(p.nodeOf("own", p.infra().Spec.ProviderID, c.ready, p.now.Add(-c.silent)))
			for n, ready := range c.others {
				p.create(p.nodeOf(fmt.Sprintf("other-%d", n), fmt.Sprintf("x:///%d", n), ready, p.now))
			}
			p.pod.Spec.NodeName = "own"
			if err := p.api.Update(t.Context(), p.pod); err != nil {
				t.Fatal(err)
			}
			if _, err := p.reconcile(); err != nil {
				t.Fatal(err)
			}
			if gone := p.machine() == nil; gone != c.want || (len(p.events) == 1) != c.want {
				t.Errorf("the Machine is deleted: %t, with %d events; want %t", gone, len(p.events), c.want)
			}
		})
	}
}
