package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func TestAMachineGetsAnInstance(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.own("m", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Spec.InstanceType = "large"
		nm.Spec.Vars = v1beta1.Vars{"n": apiextensionsv1.JSON{Raw: []byte(`{"deep":[1]}`)}}
	})
	m := w.must("m")
	all := w.fleet.all()
	if len(all) != 1 || all[0].GetId() != string(m.Spec.InstanceID) || all[0].GetIdempotencyKey() != m.Spec.IdempotencyKey ||
		all[0].GetInstanceType() != "large" {
		t.Fatalf("instances %v for spec %+v", all, m.Spec)
	}
	if m.Spec.Shard != "a" || m.Spec.ProviderID != all[0].GetNodeProviderId() || m.Status.FailureDomain != "a" ||
		m.Status.Phase != "running" || m.Status.Initialization.Provisioned == nil || !*m.Status.Initialization.Provisioned {
		t.Errorf("spec %+v, status %+v", m.Spec, m.Status)
	}
	want := []clusterv1.MachineAddress{
		{Type: clusterv1.MachineHostName, Address: all[0].GetHostname()},
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.7"}, {Type: clusterv1.MachineExternalIP, Address: "8.8.8.8"},
	}
	if !slices.Equal(m.Status.Addresses, want) {
		t.Errorf("addresses %v, want %v", m.Status.Addresses, want)
	}
	if m.Status.NodeInfo != (v1beta1.NodeInfo{}) { // the group's type is another one
		t.Errorf("node info %v", m.Status.NodeInfo)
	}
	w.want(m, "Ready", yes, "Running", "")
	w.want(m, "ShardReachable", yes, "Answers", "")
	w.want(m, "Paused", no, "NotPaused", "")

	// What is there is not written again.
	w.writes = nil
	for range 3 {
		w.must("m")
	}
	if len(w.writes) > 0 || len(w.fleet.asked) != 1 {
		t.Errorf("without a change: writes %v, calls %v", w.writes, w.fleet.asked)
	}
}

// errCrash is what a test has a call fail with.
var errCrash = errors.New("the process ended here")

// Whatever fails, and whether or not it had its effect: whoever goes on makes no second
// instance, and leaves none out.
func TestACrashAtAnyStepLeavesOneInstance(t *testing.T) {
	w := newWorld(t, "a", "b")
	ended := 0
	for n := 0; ended < 2; n++ {
		name := fmt.Sprintf("m%d", n)
		at, late := n/2, n%2 == 1
		w.own(name, nil)
		before := len(w.fleet.all())
		steps, hit := 0, false
		w.restart(func(string) (error, error) {
			steps++
			if steps-1 != at {
				return nil, nil
			}
			hit = true
			if late {
				return nil, errCrash
			}
			return errCrash, nil
		})
		_, err := w.pass(name)
		if hit != (err != nil) {
			t.Fatalf("step %d: %v", at, err)
		}
		if !hit {
			ended++
		}
		w.restart(nil)
		m := w.must(name)
		if got := len(w.fleet.all()) - before; got != 1 {
			t.Fatalf("crash at step %d (after it: %v) left %d instances", at, late, got)
		}
		if i := w.fleet.Instance(string(m.Spec.Shard), string(m.Spec.InstanceID)); i.GetIdempotencyKey() != m.Spec.IdempotencyKey {
			t.Fatalf("crash at step %d: spec %+v names the instance %v", at, m.Spec, i)
		}
		w.want(m, "Ready", yes, "Running", "")

		// And it goes as safely as it came.
		w.delete(m)
		steps = 0
		w.restart(func(string) (error, error) {
			if steps++; steps-1 != at {
				return nil, nil
			}
			if late {
				return nil, errCrash
			}
			return errCrash, nil
		})
		for range 3 {
			_, _ = w.pass(name)
		}
		w.restart(nil)
		for range 3 {
			if w.get(name) != nil {
				w.must(name)
			}
		}
		if w.get(name) != nil || len(w.fleet.all()) != before {
			t.Fatalf("crash at step %d of the deletion: the object %v, %d instances too many", at, w.get(name), len(w.fleet.all())-before)
		}
	}
	if w.fleet.made < 8 {
		t.Errorf("only %d crashes were tried", w.fleet.made)
	}
}

// A NstanceMachine whose creation broke off before the id was written down is deleted:
// the instance goes by its key.
func TestAnInstanceWithoutAnIDGoesByItsKey(t *testing.T) {
	w := newWorld(t, "a")
	m := w.own("m", nil)
	w.restart(func(what string) (error, error) {
		if strings.HasPrefix(what, "create") {
			return nil, errCrash
		}
		return nil, nil
	})
	if _, err := w.pass("m"); !errors.Is(err, errCrash) || len(w.fleet.all()) != 1 {
		t.Fatalf("%v, instances %v", err, w.fleet.all())
	}
	w.restart(nil)
	w.delete(m)
	for range 2 {
		w.must("m")
	}
	if w.get("m") != nil || len(w.fleet.all()) > 0 {
		t.Errorf("left: %v, %v", w.get("m"), w.fleet.all())
	}
	if !slices.Contains(w.fleet.asked, "delete key") {
		t.Errorf("calls %v", w.fleet.asked)
	}
}

// clusterctl moves objects without their status, and with new UIDs.
func TestWhatWasMovedIsAdopted(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.own("m", nil)
	was := w.must("m")
	moved := was.DeepCopy()
	w.delete(was)
	free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := w.api.Patch(t.Context(), was, free); err != nil {
		t.Fatal(err)
	}
	moved.ObjectMeta = w.meta("m")
	moved.Finalizers, moved.OwnerReferences = was.Finalizers, was.OwnerReferences
	moved.Status = v1beta1.NstanceMachineStatus{}
	w.create(moved)
	w.restart(nil)
	m := w.must("m")
	if m.UID == was.UID || m.Spec.InstanceID != was.Spec.InstanceID || len(w.fleet.all()) != 1 || len(w.fleet.asked) != 1 {
		t.Errorf("adopted %+v instead of %+v; calls %v", m.Spec, was.Spec, w.fleet.asked)
	}
	w.want(m, "Ready", yes, "Running", "")
}

func TestWhatAShardRefusesIsTold(t *testing.T) {
	for _, c := range []struct {
		code   codes.Code
		reason string
		err    bool // it is tried again at once
	}{
		{codes.InvalidArgument, "Refused", false},
		{codes.NotFound, "Refused", false},
		{codes.FailedPrecondition, "Refused", false},
		{codes.ResourceExhausted, "NoCapacity", false},
		{codes.Unavailable, "ShardUnreachable", true},
		{codes.DeadlineExceeded, "ShardUnreachable", true},
		{codes.Unknown, "ShardUnreachable", true},
		{codes.Internal, "CallFailed", true},
		{codes.Aborted, "CallFailed", true},
		{codes.AlreadyExists, "CallFailed", true},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			w := newWorld(t, "a")
			w.own("m", nil)
			w.fleet.change("a", func(s *fakeShard) { s.refuse = status.Error(c.code, "the server's words") })
			result, err := w.pass("m")
			if (err != nil) != c.err || !c.err && result.RequeueAfter == 0 {
				t.Errorf("%v, %v", result, err)
			}
			words := "the server's words"
			if c.reason == "ShardUnreachable" {
				words = "shard a does not answer" // which is told of the shard itself when it lasts
			} else {
				w.want(w.get("m"), "ShardReachable", yes, "Answers", "")
			}
			w.want(w.get("m"), "Ready", no, c.reason, words)
			w.writes = nil
			_, _ = w.pass("m")
			if len(w.writes) > 0 {
				t.Errorf("the same again is written: %v", w.writes)
			}
			w.fleet.change("a", func(s *fakeShard) { s.refuse = nil })
			w.want(w.must("m"), "Ready", yes, "Running", "")
		})
	}
}

func TestTheShardIsChosen(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	next := 0
	where := func(domain string) string {
		t.Helper()
		next++
		name := fmt.Sprintf("m%d", next)
		w.own(name, func(m *clusterv1.Machine, _ *v1beta1.NstanceMachine) { m.Spec.FailureDomain = domain })
		m := w.must(name)
		if m.Spec.Shard == "" {
			w.want(m, "Ready", no, "NoShard", "a, b, c")
		}
		return string(m.Spec.Shard)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("none has any", where(""), "a")
	expect("a has one", where(""), "b")
	expect("the failure domain says", where("b"), "b")
	expect("c has none", where(""), "c")
	expect("a failure domain that is no shard", where("z"), "")
	w.fleet.change("a", func(s *fakeShard) {
		s.groups["web"].Conditions = []*nstancev1.Condition{{Type: "CreatesFailing", Status: true}}
	})
	expect("a can't make more", where(""), "c")
	w.fleet.change("b", func(s *fakeShard) { s.state.Synced = false })
	expect("b is not in touch", where(""), "c")
	w.fleet.change("c", func(s *fakeShard) { delete(s.groups, "web") })
	expect("c has no such group", where(""), "a")
	w.fleet.change("a", func(s *fakeShard) { s.state.Synced = false })
	expect("none can have it", where(""), "")
}

// Nothing is asked for without a Machine, without a Cluster, or for a Machine that goes.
func TestWhatMakesNoInstance(t *testing.T) {
	w := newWorld(t, "a")
	alone := &v1beta1.NstanceMachine{ObjectMeta: w.meta("alone"), Spec: v1beta1.NstanceMachineSpec{Group: "web"}}
	w.create(alone)
	w.want(w.must("alone"), "Ready", no, "WaitingForMachine", "")

	w.own("elsewhere", func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		m.Spec.ClusterName, nm.Labels[clusterv1.ClusterNameLabel] = "other", "other"
	})
	w.want(w.must("elsewhere"), "Ready", no, "ClusterNotFound", "other")

	w.own("going", nil)
	w.delete(w.owner("going"))
	w.want(w.must("going"), "Ready", no, "Deleting", "")
	if len(w.fleet.asked) > 0 {
		t.Errorf("calls %v", w.fleet.asked)
	}
}

// Before Cluster API has set the owner reference, the Machine of its name that refers to
// it is taken for its owner, and the reference is set.
func TestAMachineIsFoundByItsReference(t *testing.T) {
	w := newWorld(t, "a")
	nm := &v1beta1.NstanceMachine{ObjectMeta: w.meta("pod"), Spec: v1beta1.NstanceMachineSpec{Group: "web"}}
	w.create(nm)
	m := &clusterv1.Machine{ObjectMeta: w.meta("pod"), Spec: clusterv1.MachineSpec{
		ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: "pod"},
	}}
	w.create(m)
	got := w.must("pod")
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != m.UID || got.Spec.InstanceID == "" {
		t.Errorf("owners %v, spec %+v", got.OwnerReferences, got.Spec)
	}
}

// A Machine that took the name of one that is gone is not the owner, and is not deleted
// for an instance that it never had.
func TestAnotherMachineOfTheNameIsNotTheOwner(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", nil)
	m := w.must("m")
	was := w.owner("m")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	w.delete(was)
	if err := w.api.Patch(t.Context(), was, patch); err != nil {
		t.Fatal(err)
	}
	other := was.DeepCopy()
	other.ObjectMeta = w.meta("m")
	w.create(other)
	w.fleet.set("a", string(m.Spec.InstanceID), func(i *nstancev1.InstanceStatus) { i.Phase = deleted })
	w.must("m")
	if now := w.owner("m"); now == nil || now.UID != other.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("the other one: %+v", now)
	}
}

func TestNothingIsDoneWhilePaused(t *testing.T) {
	w := newWorld(t, "a")
	nm := w.own("m", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	m := w.must("m")
	w.want(m, "Paused", yes, "Paused", "")
	if len(w.fleet.asked) > 0 || len(m.Finalizers) > 0 || m.Spec.Shard != "" || len(m.Status.Conditions) != 1 {
		t.Errorf("paused: calls %v, %+v", w.fleet.asked, m)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`))
	if err := w.api.Patch(t.Context(), nm, patch); err != nil {
		t.Fatal(err)
	}
	w.want(w.must("m"), "Paused", no, "NotPaused", "")

	var c clusterv1.Cluster
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: clusterName}, &c); err != nil {
		t.Fatal(err)
	}
	c.Spec.Paused = new(true)
	if err := w.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	w.delete(w.get("m"))
	if m := w.must("m"); m == nil || len(w.fleet.all()) != 1 {
		t.Errorf("deleted while the Cluster is paused: %v, %v", m, w.fleet.all())
	}
}
