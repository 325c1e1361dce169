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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// creates returns the CreateInstance calls that a shard received.
func (f *fixture) creates(shard string) (calls []*nstancev1.CreateInstanceRequest) {
	for _, c := range f.shards.Shard(shard).Calls("CreateInstance") {
		calls = append(calls, c.(*nstancev1.CreateInstanceRequest))
	}
	return calls
}

// wantFailed checks an object whose creation has failed that many times, with a call for each.
func (f *fixture) wantFailed(name string, failures int, reason, words string) *v1beta1.NstanceMachine {
	f.Helper()
	m := f.mustReconcile(name)
	c := m.Status.Creation
	if c == nil || int(c.Failures) != failures || c.Reason != reason || c.RetryTime == nil {
		f.Fatalf("creation %+v, want %d failures and %s", c, failures, reason)
	}
	f.wantCondition(m, "Ready", no, "CreateFailed", words)
	f.wantCondition(m, "Ready", no, "CreateFailed", c.RetryTime.UTC().Format(time.RFC3339))
	if o := f.machine(name); o == nil || !o.DeletionTimestamp.IsZero() {
		f.Errorf("the Machine was deleted")
	}
	return m
}

// An instance that the provider refused is requested again with growing waits, for the same
// objects and with the same key, and not earlier after a restart.
func TestRefusedInstanceIsRequestedAgain(t *testing.T) {
	f := newFixture(t, "a")
	f.shards.Shard("a").RefuseAll("no such image")
	f.createMachine("m", nil)
	uid := f.machine("m").UID
	first := f.wantFailed("m", 1, v1beta1.CreationRefused, "no such image")
	for n, wait := range []time.Duration{30 * time.Second, 2 * time.Minute, 8 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		f.restart(nil)
		f.writes = nil
		f.now = f.now.Add(wait - time.Second)
		if f.mustReconcile("m"); len(f.creates("a")) != n+1 || len(f.writes) > 0 {
			t.Fatalf("before wait %d is over: %d calls, writes %v", n, len(f.creates("a")), f.writes)
		}
		if result, err := f.reconcile("m"); err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Second {
			t.Errorf("%v, %v", result, err)
		}
		f.now = f.now.Add(2 * time.Second)
		m := f.wantFailed("m", n+2, v1beta1.CreationRefused, "no such image")
		if len(f.creates("a")) != n+2 || m.Spec.IdempotencyKey != first.Spec.IdempotencyKey || m.Spec.InstanceID == first.Spec.InstanceID {
			t.Fatalf("after wait %d: %d calls, spec %+v", n, len(f.creates("a")), m.Spec)
		}
	}
	f.shards.Shard("a").RefuseAll("")
	f.now = f.now.Add(time.Hour)
	m := f.mustReconcile("m")
	f.wantCondition(m, "Ready", yes, "Running", "")
	if m.Status.Creation != nil || len(f.instances()) != 1 || f.machine("m").UID != uid {
		t.Errorf("creation %+v, instances %v", m.Status.Creation, f.instances())
	}
	for _, c := range f.creates("a") {
		if c.GetIdempotencyKey() != first.Spec.IdempotencyKey {
			t.Errorf("another key: %v", c)
		}
	}
}

// A machine that never registers is given up by its shard, and its key names it for ever: the
// next attempt has another key, and there is never more than one instance.
func TestMachineThatDidNotRegisterIsCreatedAgain(t *testing.T) {
	f := newFixture(t, "a")
	a := f.shards.Shard("a")
	a.SetTiming(func(timing *shardstest.Timing) { timing.Boot = time.Hour })
	f.createMachine("m", nil)
	m := f.mustReconcile("m")
	for n := range 3 {
		details, want := "", "registration address"
		if n == 1 {
			details, want = ": the registration of its agent was refused: x", "in time: the registration of its agent was refused: x"
		}
		a.TimeOut(string(m.Spec.InstanceID), details)
		m = f.wantFailed("m", n+1, v1beta1.CreationNotRegistered, want)
		f.now = f.now.Add(time.Hour)
		key, id := m.Spec.IdempotencyKey, m.Spec.InstanceID
		m = f.mustReconcile("m")
		if len(f.instances()) != 1 || m.Spec.IdempotencyKey == key || m.Spec.InstanceID == id || m.Status.Creation.RetryTime != nil {
			t.Fatalf("attempt %d: spec %+v, instances %v", n+2, m.Spec, f.instances())
		}
		f.wantCondition(m, "Ready", no, "Pending", "")
	}
	a.Boot(string(m.Spec.InstanceID))
	f.wantCondition(f.mustReconcile("m"), "Ready", yes, "Running", "")
}

// What a shard refuses is not requested again until the group or the spec changes, but checked
// twice an hour.
func TestRefusalLastsUntilGroupOrSpecChanges(t *testing.T) {
	for code, reason := range map[codes.Code]string{
		codes.InvalidArgument: v1beta1.CreationInvalid, codes.NotFound: v1beta1.CreationGroupNotFound,
		codes.FailedPrecondition: v1beta1.CreationNotAllowed, codes.PermissionDenied: v1beta1.CreationNotAllowed,
	} {
		t.Run(code.String(), func(t *testing.T) {
			f := newFixture(t, "a")
			f.shards.Shard("a").Fail("CreateInstance", status.Error(code, "words of the shard"), -1)
			f.createMachine("m", nil)
			f.wantFailed("m", 1, reason, "words of the shard")
			f.now = f.now.Add(29 * time.Minute)
			f.wantFailed("m", 1, reason, "or when the group changes")
			f.now = f.now.Add(2 * time.Minute)
			f.wantFailed("m", 2, reason, "2 times")

			f.now = f.now.Add(time.Minute)
			f.shards.Shard("a").Upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: new("large")})
			m := f.wantFailed("m", 3, reason, "3 times")
			m.Spec.InstanceType = "small"
			if err := f.api.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			f.wantFailed("m", 3, reason, "") // a changed group is no reason to hurry
			f.now = f.now.Add(time.Minute)
			f.wantFailed("m", 4, reason, "")
			if n := len(f.creates("a")); n != 4 {
				t.Errorf("%d calls, want 4", n)
			}
		})
	}
}

// If the answer to the repeated request is lost, the next one finds its instance.
func TestLostAnswerToRepeatedRequest(t *testing.T) {
	f := newFixture(t, "a")
	a := f.shards.Shard("a")
	a.RefuseAll("no such image")
	f.createMachine("m", nil)
	f.wantFailed("m", 1, v1beta1.CreationRefused, "")
	a.RefuseAll("")
	f.now = f.now.Add(time.Hour)
	for _, at := range []string{"create", "patch", "status"} {
		broken := true
		f.restart(func(what string) (before, after error) {
			if broken && strings.HasPrefix(what, at) {
				broken = false
				return nil, errCrash
			}
			return nil, nil
		})
		if _, err := f.reconcile("m"); !errors.Is(err, errCrash) {
			t.Fatalf("%s was not interrupted: %v", at, err)
		}
		f.restart(nil)
	}
	m := f.mustReconcile("m")
	f.wantCondition(m, "Ready", yes, "Running", "")
	if all := f.instances(); len(all) != 1 || all[0].GetId() != string(m.Spec.InstanceID) || len(f.creates("a")) != 3 {
		t.Errorf("instances %v, spec %+v, %d calls", all, m.Spec, len(f.creates("a")))
	}
}

// The deletion of an object whose creation has failed gives up the key, also if it names an
// instance of which the answer was lost.
func TestDeletionGivesUpKeyOfFailedCreation(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost %t", lost), func(t *testing.T) {
			f := newFixture(t, "a")
			a := f.shards.Shard("a")
			a.RefuseAll("no such image")
			f.createMachine("m", nil)
			m := f.wantFailed("m", 1, v1beta1.CreationRefused, "")
			a.RefuseAll("")
			if lost {
				if made, err := f.shards.Set.CreateInstance(t.Context(), "a", f.creates("a")[0]); err != nil ||
					made.GetId() == string(m.Spec.InstanceID) {
					t.Fatalf("%v, %v", made, err)
				}
			}
			f.delete(m)
			for range 3 {
				f.mustReconcile("m")
			}
			if f.get("m") != nil || len(f.instances()) > 0 {
				t.Errorf("left: %v, %v", f.get("m"), f.instances())
			}
			if made, err := f.shards.Set.CreateInstance(t.Context(), "a", f.creates("a")[0]); err != nil || made.GetPhase() != deleted {
				t.Errorf("the key makes another instance: %v, %v", made, err)
			}
		})
	}
}

// A Machine that is being deleted gets no further attempt.
func TestNoFurtherAttemptForDeletedMachine(t *testing.T) {
	f := newFixture(t, "a")
	f.shards.Shard("a").RefuseAll("no such image")
	f.createMachine("m", nil)
	f.wantFailed("m", 1, v1beta1.CreationRefused, "")
	f.delete(f.machine("m"))
	f.now = f.now.Add(time.Hour)
	if f.mustReconcile("m"); len(f.creates("a")) != 1 {
		t.Errorf("calls %v", f.creates("a"))
	}
}

// A moved object has lost its status. Its instance has lived if its Machine has a provider ID.
func TestMovedMachineOfGoneInstanceIsDeleted(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", nil)
	m := f.mustReconcile("m")
	o := f.machine("m")
	o.Spec.ProviderID = m.Spec.ProviderID
	if err := f.api.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	a := f.shards.Shard("a")
	a.Edit(string(m.Spec.InstanceID), func(i *nstancev1.InstanceStatus) { i.RegisteredAt = nil })
	a.Kill(string(m.Spec.InstanceID))
	m.Status = v1beta1.NstanceMachineStatus{ObservedGeneration: 1}
	if err := f.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	f.restart(nil)
	f.wantCondition(f.mustReconcile("m"), "Ready", no, "InstanceGone", "")
	if f.machine("m").DeletionTimestamp.IsZero() || len(f.creates("a")) != 1 {
		t.Errorf("the Machine stays, calls %v", f.creates("a"))
	}
}

// The next attempt is on another shard, if the operator chose the first.
func TestNextAttemptIsOnAnotherShard(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*clusterv1.Machine, *v1beta1.NstanceMachine)
		want   string
	}{
		"chosen":         {nil, "b"},
		"failure domain": {inDomain("a"), "a"},
		"spec.shard":     {func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) { nm.Spec.Shard = "a" }, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a", "b", "c")
			a := f.shards.Shard("a")
			a.RefuseAll("no such image")
			f.createMachine("m", c.change)
			first := f.wantFailed("m", 1, v1beta1.CreationRefused, "shard a")
			a.RefuseAll("")
			f.now = f.now.Add(time.Minute)
			m := f.mustReconcile("m")
			f.wantCondition(m, "Ready", yes, "Running", "")
			if string(m.Spec.Shard) != c.want || m.Status.FailureDomain != c.want || len(f.instances()) != 1 {
				t.Fatalf("spec %+v, instances %v", m.Spec, f.instances())
			}
			if moved := m.Spec.IdempotencyKey != first.Spec.IdempotencyKey; moved != (c.want == "b") {
				t.Errorf("keys %s and %s", first.Spec.IdempotencyKey, m.Spec.IdempotencyKey)
			}
			if c.want == "a" {
				return
			}
			if made, err := f.shards.Set.CreateInstance(t.Context(), "a", f.creates("a")[0]); err != nil || made.GetPhase() != deleted {
				t.Errorf("the first key makes another instance: %v, %v", made, err)
			}
		})
	}
}

// simulate reconciles the objects as a manager does, for that long by the fixture's clock.
func (f *fixture) simulate(d time.Duration, names ...string) {
	f.Helper()
	end, due := f.now.Add(d), map[string]time.Time{}
	for _, name := range names {
		due[name] = f.now
	}
	for len(due) > 0 {
		name := slices.MinFunc(names, func(a, b string) int {
			if due[a].IsZero() || due[b].IsZero() {
				return due[b].Compare(due[a])
			}
			return due[a].Compare(due[b])
		})
		at, ok := due[name]
		if !ok || at.After(end) {
			break
		}
		f.now = at
		calls := f.callCount()
		result, err := f.reconcile(name)
		switch {
		case err != nil:
			f.Fatalf("reconcile %s: %v", name, err)
		case f.callCount() != calls: // an event follows
		case result.RequeueAfter > 0:
			due[name] = at.Add(result.RequeueAfter)
		default:
			delete(due, name)
		}
	}
	f.now = end
}

// The cost of ten machines that can never be: requests to the shard and events, a minute, after
// five minutes, with a restart of the operator every minute.
func TestCostOfMachinesThatCanNeverBe(t *testing.T) {
	for name, refuse := range map[string]func(f *fixture){
		"by the provider": func(f *fixture) { f.shards.Shard("a").RefuseAll("no such image") },
		"by the shard": func(f *fixture) {
			f.shards.Shard("a").Fail("CreateInstance", status.Error(codes.FailedPrecondition, "not allowed"), -1)
		},
		"for lack of room": func(f *fixture) {
			f.shards.Shard("a").Fail("CreateInstance", status.Error(codes.ResourceExhausted, "no room"), -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a")
			refuse(f)
			var names []string
			for n := range 10 {
				names = append(names, fmt.Sprintf("m%d", n))
				f.createMachine(names[n], nil)
			}
			run := func(minutes int) (requests int) {
				before := f.callCount()
				for range minutes {
					f.simulate(time.Minute, names...)
					if len(f.events) > 0 {
						t.Errorf("%d events, the first %q", len(f.events), <-f.events)
					}
					f.restart(nil)
				}
				return f.callCount() - before
			}
			first, later := run(5), run(10)
			t.Logf("%d requests in the first 5 minutes, %d in the next 10", first, later)
			if first > 60 || later > 40 {
				t.Errorf("%d requests in the first 5 minutes, %d in the next 10: want at most 60 and 40", first, later)
			}
			keys := map[string]bool{}
			for _, c := range f.creates("a") {
				keys[c.GetIdempotencyKey()] = true
			}
			if len(keys) != len(names) {
				t.Errorf("%d keys for %d machines", len(keys), len(names))
			}
		})
	}
}
