package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func TestMachineGetsInstance(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.createMachine("m", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Spec.InstanceType = "large"
		nm.Spec.Vars = v1beta1.Vars{"n": apiextensionsv1.JSON{Raw: []byte(`{"deep":[1]}`)}}
	})
	m := f.mustReconcile("m")
	f.shards.Shard("a").Edit(string(m.Spec.InstanceID), func(i *nstancev1.InstanceStatus) {
		i.Ips = []string{"10.0.0.7", "8.8.8.8", "nonsense"}
	})
	m = f.mustReconcile("m")
	all := f.instances()
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
	if m.Status.NodeInfo != (v1beta1.NodeInfo{}) { // the node info of the group's type does not apply
		t.Errorf("node info %v", m.Status.NodeInfo)
	}
	f.wantCondition(m, "Ready", yes, "Running", "")
	f.wantCondition(m, "ShardReachable", yes, "Answers", "")
	f.wantCondition(m, "Paused", no, "NotPaused", "")

	// Without a change, nothing is written and no call is made.
	f.writes = nil
	for range 3 {
		f.mustReconcile("m")
	}
	if len(f.writes) > 0 || len(f.calls()) != 1 {
		t.Errorf("without a change: writes %v, calls %v", f.writes, f.calls())
	}
}

// errCrash is the error of calls that a test interrupts.
var errCrash = errors.New("simulated crash")

// After a crash at any call, before or after it took effect, the next reconciles create exactly
// one instance.
func TestCrashAtAnyStepCreatesOneInstance(t *testing.T) {
	f := newFixture(t, "a", "b")
	ended := 0
	for n := 0; ended < 2; n++ {
		name := fmt.Sprintf("m%d", n)
		at, late := n/2, n%2 == 1
		f.createMachine(name, nil)
		before := len(f.instances())
		steps, hit := 0, false
		f.restart(func(string) (error, error) {
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
		_, err := f.reconcile(name)
		if hit != (err != nil) {
			t.Fatalf("step %d: %v", at, err)
		}
		if !hit {
			ended++
		}
		f.restart(nil)
		m := f.mustReconcile(name)
		if got := len(f.instances()) - before; got != 1 {
			t.Fatalf("crash at step %d (after it took effect: %v) left %d instances, want 1", at, late, got)
		}
		if i := f.shards.Shard(string(m.Spec.Shard)).Instance(string(m.Spec.InstanceID)); i.GetIdempotencyKey() != m.Spec.IdempotencyKey {
			t.Fatalf("crash at step %d: spec %+v names the instance %v", at, m.Spec, i)
		}
		f.wantCondition(m, "Ready", yes, "Running", "")

		// A crash at any call of the deletion leaves neither object nor instance.
		f.delete(m)
		steps = 0
		f.restart(func(string) (error, error) {
			if steps++; steps-1 != at {
				return nil, nil
			}
			if late {
				return nil, errCrash
			}
			return errCrash, nil
		})
		for range 3 {
			_, _ = f.reconcile(name)
		}
		f.restart(nil)
		for range 3 {
			if f.get(name) != nil {
				f.mustReconcile(name)
			}
		}
		if f.get(name) != nil || len(f.instances()) != before {
			t.Fatalf("crash at step %d of the deletion left the object %v and %d instances", at, f.get(name), len(f.instances())-before)
		}
	}
	if made := len(f.shards.Shard("a").Instances("")) + len(f.shards.Shard("b").Instances("")); made < 8 {
		t.Errorf("only %d crashes were simulated", made)
	}
}

// The create was interrupted before the instance ID was recorded, and the NstanceMachine is
// deleted. The instance is deleted by its idempotency key.
func TestInstanceWithoutIDIsDeletedByKey(t *testing.T) {
	f := newFixture(t, "a")
	m := f.createMachine("m", nil)
	f.restart(func(what string) (error, error) {
		if strings.HasPrefix(what, "create") {
			return nil, errCrash
		}
		return nil, nil
	})
	if _, err := f.reconcile("m"); !errors.Is(err, errCrash) || len(f.instances()) != 1 {
		t.Fatalf("%v, instances %v", err, f.instances())
	}
	f.restart(nil)
	f.delete(m)
	for range 2 {
		f.mustReconcile("m")
	}
	if f.get("m") != nil || len(f.instances()) > 0 {
		t.Errorf("left: %v, %v", f.get("m"), f.instances())
	}
	calls := f.shards.Shard("a").Calls("DeleteInstance")
	if len(calls) == 0 || calls[0].(*nstancev1.DeleteInstanceRequest).GetIdempotencyKey() == "" {
		t.Errorf("calls %v", calls)
	}
}

// clusterctl move recreates objects without status and with new UIDs.
func TestMovedMachineKeepsInstance(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.createMachine("m", nil)
	was := f.mustReconcile("m")
	moved := was.DeepCopy()
	f.delete(was)
	removeFinalizers := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := f.api.Patch(t.Context(), was, removeFinalizers); err != nil {
		t.Fatal(err)
	}
	moved.ObjectMeta = f.meta("m")
	moved.Finalizers, moved.OwnerReferences = was.Finalizers, was.OwnerReferences
	moved.Status = v1beta1.NstanceMachineStatus{}
	f.create(moved)
	f.restart(nil)
	m := f.mustReconcile("m")
	if m.UID == was.UID || m.Spec.InstanceID != was.Spec.InstanceID || len(f.instances()) != 1 || len(f.calls()) != 1 {
		t.Errorf("spec %+v, before the move %+v; calls %v", m.Spec, was.Spec, f.calls())
	}
	f.wantCondition(m, "Ready", yes, "Running", "")
}

func TestCreateErrorsSetConditions(t *testing.T) {
	for _, c := range []struct {
		code   codes.Code
		reason string
		err    bool // Reconcile returns an error, so that it is retried with back-off
	}{
		{codes.InvalidArgument, "CreateFailed", false},
		{codes.NotFound, "CreateFailed", false},
		{codes.FailedPrecondition, "CreateFailed", false},
		{codes.PermissionDenied, "CreateFailed", false},
		{codes.ResourceExhausted, "CreateFailed", false},
		{codes.Unavailable, "ShardUnreachable", true},
		{codes.DeadlineExceeded, "ShardUnreachable", true},
		{codes.Unknown, "ShardUnreachable", true},
		{codes.Internal, "CallFailed", true},
		{codes.Aborted, "CallFailed", true},
		{codes.AlreadyExists, "CallFailed", true},
	} {
		t.Run(c.code.String(), func(t *testing.T) {
			on := shardstest.New(t, func(cfg *shards.Config) {
				if c.code == codes.Unavailable {
					cfg.Timeout = 15 * time.Second // the client retries for that long to find a leader
				}
			}, "a")
			on.Run()
			f := newFixtureOn(t, on, "a")
			f.createMachine("m", nil)
			f.shards.Shard("a").Fail("CreateInstance", status.Error(c.code, "message of the server"), -1)
			result, err := f.reconcile("m")
			if (err != nil) != c.err || !c.err && result.RequeueAfter == 0 {
				t.Errorf("%v, %v", result, err)
			}
			words := "message of the server"
			if c.reason == "ShardUnreachable" {
				words = "shard a does not answer" // ShardReachable changes only when that lasts
			} else {
				f.wantCondition(f.get("m"), "ShardReachable", yes, "Answers", "")
			}
			f.wantCondition(f.get("m"), "Ready", no, c.reason, words)
			f.writes = nil
			_, _ = f.reconcile("m")
			if len(f.writes) > 0 {
				t.Errorf("writes without a change: %v", f.writes)
			}
			f.shards.Shard("a").Fail("CreateInstance", nil, 0)
			f.now = f.now.Add(time.Hour)
			f.wantCondition(f.mustReconcile("m"), "Ready", yes, "Running", "")
		})
	}
}

func TestShardSelection(t *testing.T) {
	f := newFixture(t, "a", "b", "c")
	next := 0
	place := func(domain string) string {
		t.Helper()
		next++
		name := fmt.Sprintf("m%d", next)
		f.createMachine(name, inDomain(domain))
		m := f.mustReconcile(name)
		if m.Spec.Shard == "" {
			f.wantCondition(m, "Ready", no, "NoShard", "a, b, c")
		}
		return string(m.Spec.Shard)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("no instances yet", place(""), "a")
	expect("one on a", place(""), "b")
	expect("failure domain b", place("b"), "b")
	expect("none on c", place(""), "c")
	expect("unknown failure domain", place("z"), "")
	f.shards.Shard("a").SetCondition("web", "CreatesFailing", true, "", "")
	expect("creates fail on a", place(""), "c")
	f.shards.Shard("b").Stop()
	expect("b is unreachable", place(""), "c")
	f.shards.Shard("c").KillAll("web")
	f.shards.Shard("c").Delete("web")
	expect("no such group on c", place(""), "a")
	f.shards.Shard("a").Stop()
	expect("no eligible shard", place(""), "")
}

// No instance is created without a Machine, without a Cluster, or for a Machine that is being
// deleted.
func TestNoInstanceIsCreated(t *testing.T) {
	f := newFixture(t, "a")
	orphan := &v1beta1.NstanceMachine{ObjectMeta: f.meta("no-machine"), Spec: v1beta1.NstanceMachineSpec{Group: "web"}}
	f.create(orphan)
	f.wantCondition(f.mustReconcile("no-machine"), "Ready", no, "WaitingForMachine", "")

	f.createMachine("no-cluster", func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		m.Spec.ClusterName, nm.Labels[clusterv1.ClusterNameLabel] = "other", "other"
	})
	f.wantCondition(f.mustReconcile("no-cluster"), "Ready", no, "ClusterNotFound", "other")

	f.createMachine("deleting", nil)
	f.delete(f.machine("deleting"))
	f.wantCondition(f.mustReconcile("deleting"), "Ready", no, "Deleting", "")
	if len(f.calls()) > 0 {
		t.Errorf("calls %v", f.calls())
	}
}

// Before Cluster API has set the owner reference, the Machine whose infrastructureRef names the
// NstanceMachine counts as its owner, and the reference is set.
func TestOwnerIsFoundByInfrastructureRef(t *testing.T) {
	f := newFixture(t, "a")
	nm := &v1beta1.NstanceMachine{ObjectMeta: f.meta("pod"), Spec: v1beta1.NstanceMachineSpec{Group: "web"}}
	f.create(nm)
	m := &clusterv1.Machine{ObjectMeta: f.meta("pod"), Spec: clusterv1.MachineSpec{
		ClusterName: clusterName, Bootstrap: clusterv1.Bootstrap{DataSecretName: new("")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachine", Name: "pod"},
	}}
	f.create(m)
	got := f.mustReconcile("pod")
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != m.UID || got.Spec.InstanceID == "" {
		t.Errorf("owners %v, spec %+v", got.OwnerReferences, got.Spec)
	}
}

// A Machine that has the name of a deleted one is not the owner, and is not deleted when the
// instance of the deleted one is gone.
func TestMachineWithReusedNameIsNotTheOwner(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", nil)
	m := f.mustReconcile("m")
	was := f.machine("m")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	f.delete(was)
	if err := f.api.Patch(t.Context(), was, patch); err != nil {
		t.Fatal(err)
	}
	other := was.DeepCopy()
	other.ObjectMeta = f.meta("m")
	f.create(other)
	f.shards.Shard("a").Kill(string(m.Spec.InstanceID))
	f.mustReconcile("m")
	if now := f.machine("m"); now == nil || now.UID != other.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("the new Machine: %+v", now)
	}
}

func TestPaused(t *testing.T) {
	f := newFixture(t, "a")
	nm := f.createMachine("m", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	m := f.mustReconcile("m")
	f.wantCondition(m, "Paused", yes, "Paused", "")
	if len(f.calls()) > 0 || len(m.Finalizers) > 0 || m.Spec.Shard != "" || len(m.Status.Conditions) != 1 {
		t.Errorf("while paused: calls %v, %+v", f.calls(), m)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`))
	if err := f.api.Patch(t.Context(), nm, patch); err != nil {
		t.Fatal(err)
	}
	f.wantCondition(f.mustReconcile("m"), "Paused", no, "NotPaused", "")

	var c clusterv1.Cluster
	if err := f.api.Get(t.Context(), client.ObjectKey{Namespace: f.ns, Name: clusterName}, &c); err != nil {
		t.Fatal(err)
	}
	c.Spec.Paused = new(true)
	if err := f.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	f.delete(f.get("m"))
	if m := f.mustReconcile("m"); m == nil || len(f.instances()) != 1 {
		t.Errorf("deleted while the Cluster is paused: %v, %v", m, f.instances())
	}
}
