package machine_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func TestStatusFollowsInstance(t *testing.T) {
	f := newFixture(t, "a")
	a := f.shards.Shard("a")
	a.NoRoom(true)
	f.createMachine("m", nil)
	id := string(f.mustReconcile("m").Spec.InstanceID)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, c := range []struct {
		name          string
		change        func()
		ready         metav1.ConditionStatus
		reason, words string
	}{
		{"no capacity", func() {}, no, "CreateFailing", "no capacity"},
		{"booting", func() {
			a.SetTiming(func(timing *shardstest.Timing) { timing.Boot = time.Hour })
			a.NoRoom(false)
		}, no, "Pending", "registered"},
		{"running", func() { a.Boot(id) }, yes, "Running", ""},
		{"unhealthy", func() {
			a.Edit(id, func(i *nstancev1.InstanceStatus) { i.UnhealthyReason = "no report" })
		}, no, "Unhealthy", "no report"},
		{"termination notice", func() {
			a.Edit(id, func(i *nstancev1.InstanceStatus) { i.UnhealthyReason = "" })
			a.Notice(id, until)
		}, no, "Draining", "termination-notice; it will be deleted by " + until.Format(time.RFC3339)},
		{"deleting", func() {
			a.Edit(id, func(i *nstancev1.InstanceStatus) { i.Phase, i.Reason = deleting, "vm-down" })
		}, no, "Deleting", "vm-down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change()
			got := f.mustReconcile("m")
			f.wantCondition(got, "Ready", c.ready, c.reason, c.words)
			was := got.Status.Initialization.Provisioned
			if registered := a.Instance(id).GetRegisteredAt() != nil; registered != (was != nil && *was) {
				t.Errorf("provisioned: %v; registered: %t", was, registered)
			}
			switch c.name {
			case "booting":
				if got.Status.NodeInfo != (v1beta1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux"}) {
					t.Errorf("node info %v", got.Status.NodeInfo)
				}
			case "termination notice":
				f.wantCondition(got, "Terminating", yes, "TerminationNotice", until.Format(time.RFC3339))
			case "deleting":
				f.wantCondition(got, "Terminating", yes, "VmDown", "vm-down")
			}
		})
	}
}

// While a shard is unreachable, or its snapshot is incomplete, the status shows the last known
// state of the instance.
func TestStatusIsKeptWhileShardIsUnreachable(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", nil)
	was := f.mustReconcile("m")
	f.shards = shardstest.New(t, nil, "a")
	f.stopShard("a")
	f.shards.Run()
	f.restart(nil)
	m := f.mustReconcile("m")
	f.wantCondition(m, "ShardReachable", no, "ShardUnreachable", "shard a")
	f.wantCondition(m, "Ready", yes, "Running", "")
	if m.Status.Phase != was.Status.Phase || len(m.Status.Addresses) != len(was.Status.Addresses) || f.machine("m") == nil {
		t.Errorf("%+v, before %+v", m.Status, was.Status)
	}
}

// The start of an operator, and a change of a shard's leader, change no condition.
func TestShortOutageChangesNoCondition(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", nil)
	f.mustReconcile("m")
	f.writes = nil
	all := f.shards
	for name, interrupt := range map[string]func(){
		"start of the operator": func() {
			f.shards = shardstest.New(t, nil, "a") // which does not run
			f.restart(nil)
		},
		"change of leader": func() {
			f.shards = all
			f.stopShard("a")
			state, _ := all.Set.State("a")
			f.now = state.Since.Add(2 * time.Second)
			f.restart(nil)
		},
	} {
		interrupt()
		result, err := f.reconcile("m")
		if again := result.RequeueAfter; err != nil || len(f.writes) > 0 || name == "change of leader" && (again == 0 || again > time.Second) {
			t.Errorf("%s: requeue after %v, %v, writes %v", name, again, err, f.writes)
		}
	}
}

func TestMachineOfGoneInstanceIsDeleted(t *testing.T) {
	for name, lose := range map[string]func(f *fixture, id string){
		"tombstone": func(f *fixture, id string) { f.shards.Shard("a").Kill(id) },
		"no record": func(f *fixture, id string) {
			a := f.shards.Shard("a")
			a.SetTiming(func(timing *shardstest.Timing) { timing.Tombstone = time.Millisecond })
			a.Stop()
			a.Kill(id)
			shardstest.Eventually(f, "the tombstone is gone", func() bool { return a.Instance(id) == nil })
			f.shards.Heard()
			a.Start()
			f.shards.Heard()
			f.awaitMissing(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a")
			f.createMachine("m", nil)
			m := f.mustReconcile("m")
			lose(f, string(m.Spec.InstanceID))
			m = f.mustReconcile("m")
			f.wantCondition(m, "Ready", no, "InstanceGone", string(m.Spec.InstanceID))
			o := f.machine("m")
			_, undrained := o.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]
			_, undetached := o.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]
			if !undrained || !undetached || o.DeletionTimestamp.IsZero() {
				t.Errorf("the Machine: annotations %v, deleted %v", o.Annotations, o.DeletionTimestamp)
			}
			f.writes = nil
			if f.mustReconcile("m"); len(f.writes) > 0 {
				t.Errorf("writes without a change: %v", f.writes)
			}
			f.delete(m)
			if left := f.mustReconcile("m"); left != nil || len(f.calls()) != 1 {
				t.Errorf("not released: %v; calls %v", left, f.calls())
			}
		})
	}
}

// An ID that no shard ever had may be a typo: no Machine is deleted because of it.
func TestUnknownInstanceIDDeletesNothing(t *testing.T) {
	f := newFixture(t, "a")
	f.createMachine("m", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Spec.Shard, nm.Spec.InstanceID = "a", unknownID
	})
	f.mustReconcile("m")
	f.awaitMissing(unknownID)
	f.wantCondition(f.mustReconcile("m"), "Ready", no, "InstanceUnknown", unknownID)
	if o := f.machine("m"); !o.DeletionTimestamp.IsZero() || len(f.calls()) > 0 {
		t.Errorf("deleted %v, calls %v", o.DeletionTimestamp, f.calls())
	}
	a := f.shards.Shard("a")
	a.Mute()
	f.resize("a", 1)
	f.createMachine("n", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Spec.InstanceID = v1beta1.InstanceID(f.instances()[0].GetId())
	})
	f.wantCondition(f.mustReconcile("n"), "Ready", no, "NoShard", "spec.shard")
	a.Unmute()
	if m := f.mustReconcile("n"); m.Spec.Shard != "a" || m.Spec.IdempotencyKey != "" || len(f.calls()) > 0 {
		t.Errorf("adopted: %+v, calls %v", m.Spec, f.calls())
	}
}

func TestTemplateShowsCapacity(t *testing.T) {
	f := newFixture(t, "a", "b")
	templates := &machine.Templates{Client: f.rec.Client, Shards: f.shards.Set}
	show := func(name string, spec v1beta1.NstanceMachineSpec) v1beta1.NstanceMachineTemplateStatus {
		t.Helper()
		tm := &v1beta1.NstanceMachineTemplate{ObjectMeta: f.meta(name)}
		tm.Spec.Template.Spec = spec
		f.create(tm)
		key := client.ObjectKeyFromObject(tm)
		for range 2 {
			if _, err := templates.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.api.Get(t.Context(), key, tm); err != nil {
			t.Fatal(err)
		}
		return tm.Status
	}
	f.shards.Shard("a").Delete("web")
	f.shards.Heard()
	s := show("web", v1beta1.NstanceMachineSpec{Group: "web"})
	if s.Capacity.Cpu().MilliValue() != 4000 || s.Capacity.Memory().Value() != 8<<30 || s.NodeInfo.Architecture != "arm64" {
		t.Errorf("status %+v", s)
	}
	if len(f.writes) != 1 {
		t.Errorf("writes %v, want one", f.writes)
	}
	for name, spec := range map[string]v1beta1.NstanceMachineSpec{
		"other-type":  {Group: "web", InstanceType: "large"},
		"other-group": {Group: "db"},
		"other-shard": {Group: "web", Shard: "a"},
	} {
		if s := show(name, spec); len(s.Capacity) > 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
