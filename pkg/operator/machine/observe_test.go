package machine_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func TestTheStatusFollowsTheInstance(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", nil)
	m := w.must("m")
	if m.Status.NodeInfo != (v1beta1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux"}) {
		t.Errorf("node info %v", m.Status.NodeInfo)
	}
	until := timestamppb.New(time.Date(2026, 3, 1, 0, 2, 0, 0, time.UTC))
	for _, c := range []struct {
		name          string
		change        func(*nstancev1.InstanceStatus)
		ready         metav1.ConditionStatus
		reason, words string
	}{
		{"no machine yet", func(i *nstancev1.InstanceStatus) { i.Phase = pending }, no, "Pending", "registered"},
		{"no room for it", func(i *nstancev1.InstanceStatus) { i.LastError = "subnet full" }, no, "CreateFailing", "subnet full"},
		{"it runs", func(i *nstancev1.InstanceStatus) { i.Phase, i.LastError = running, "" }, yes, "Running", ""},
		{"it is ill", func(i *nstancev1.InstanceStatus) { i.UnhealthyReason = "no report" }, no, "Unhealthy", "no report"},
		{"a spot notice", func(i *nstancev1.InstanceStatus) {
			i.Phase, i.UnhealthyReason = draining, ""
			i.Drain = &nstancev1.DrainStatus{Reason: "termination-notice", DeleteAt: until}
		}, no, "Draining", "termination-notice; it is deleted at 2026-03-01T00:02:00Z"},
		{"it is deleted", func(i *nstancev1.InstanceStatus) { i.Phase, i.Reason = deleting, "vm-down" }, no, "Deleting", "vm-down"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.fleet.set("a", string(m.Spec.InstanceID), c.change)
			got := w.must("m")
			w.want(got, "Ready", c.ready, c.reason, c.words)
			if !*got.Status.Initialization.Provisioned {
				t.Error("what was provisioned once is not any more")
			}
			switch c.name {
			case "a spot notice":
				w.want(got, "Terminating", yes, "TerminationNotice", "2026-03-01T00:02:00Z")
			case "it is deleted":
				w.want(got, "Terminating", yes, "VmDown", "vm-down")
			}
		})
	}
}

// A shard that does not answer, or has not told of all, says nothing about an instance:
// what was seen last stays.
func TestTheStatusStaysWhileTheShardIsSilent(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", nil)
	was := w.must("m")
	w.fleet.change("a", func(s *fakeShard) {
		s.silent()
		s.state.Known = false
		clear(s.instances)
	})
	m := w.must("m")
	w.want(m, "ShardReachable", no, "ShardUnreachable", "shard a")
	w.want(m, "Ready", yes, "Running", "")
	if m.Status.Phase != was.Status.Phase || len(m.Status.Addresses) != len(was.Status.Addresses) || w.owner("m") == nil {
		t.Errorf("%+v, before %+v", m.Status, was.Status)
	}
}

// An operator that begins, and a shard whose leader changes, are no news.
func TestAShortSilenceIsNotTold(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", nil)
	w.must("m")
	w.writes = nil
	for name, silence := range map[string]func(*fakeShard){
		"nothing heard yet":  func(s *fakeShard) { s.silent(); s.state.Err = nil },
		"a change of leader": func(s *fakeShard) { s.silent(); s.state.Since = w.rec.Now().Add(-2 * time.Second) },
	} {
		w.fleet.change("a", silence)
		result, err := w.pass("m")
		if again := result.RequeueAfter; err != nil || len(w.writes) > 0 || name == "a change of leader" && (again == 0 || again > time.Second) {
			t.Errorf("%s: again in %v, %v, writes %v", name, again, err, w.writes)
		}
	}
}

func TestAnInstanceThatIsGoneTakesItsMachineAlong(t *testing.T) {
	for name, lose := range map[string]func(*world, *v1beta1.NstanceMachine){
		"a tombstone": func(w *world, m *v1beta1.NstanceMachine) {
			w.fleet.set("a", string(m.Spec.InstanceID), func(i *nstancev1.InstanceStatus) { i.Phase, i.Reason = deleted, "vm-gone" })
		},
		"not there": func(w *world, m *v1beta1.NstanceMachine) {
			w.fleet.change("a", func(s *fakeShard) { delete(s.instances, string(m.Spec.InstanceID)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			w.own("m", nil)
			m := w.must("m")
			lose(w, m)
			m = w.must("m")
			w.want(m, "Ready", no, "InstanceGone", string(m.Spec.InstanceID))
			o := w.owner("m")
			if _, excluded := o.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !excluded || o.DeletionTimestamp.IsZero() {
				t.Errorf("the Machine: annotations %v, deleted %v", o.Annotations, o.DeletionTimestamp)
			}
			w.writes = nil
			if w.must("m"); len(w.writes) > 0 {
				t.Errorf("once more: %v", w.writes)
			}
			w.delete(m)
			if left := w.must("m"); left != nil || len(w.fleet.asked) != 1 {
				t.Errorf("left: %v; calls %v", left, w.fleet.asked)
			}
		})
	}
}

// An id that no shard ever knew may be a slip of the pen; nothing is deleted for it.
func TestAnUnknownInstanceDeletesNothing(t *testing.T) {
	w := newWorld(t, "a")
	w.own("m", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		nm.Spec.Shard, nm.Spec.InstanceID = "a", poolID
	})
	w.want(w.must("m"), "Ready", no, "InstanceUnknown", poolID)
	if o := w.owner("m"); !o.DeletionTimestamp.IsZero() || len(w.fleet.asked) > 0 {
		t.Errorf("deleted %v, calls %v", o.DeletionTimestamp, w.fleet.asked)
	}
	w.own("n", func(_ *clusterv1.Machine, nm *v1beta1.NstanceMachine) { nm.Spec.InstanceID = poolID })
	w.want(w.must("n"), "Ready", no, "NoShard", "spec.shard")
	w.fleet.put("a", poolID, true, running)
	if m := w.must("n"); m.Spec.Shard != "a" || m.Spec.IdempotencyKey != "" || len(w.fleet.asked) > 0 {
		t.Errorf("adopted: %+v, calls %v", m.Spec, w.fleet.asked)
	}
}

func TestATemplateShowsWhatItsMachinesHave(t *testing.T) {
	w := newWorld(t, "a", "b")
	templates := &machine.Templates{Client: w.rec.Client, Shards: w.fleet}
	show := func(name string, spec v1beta1.NstanceMachineSpec) v1beta1.NstanceMachineTemplateStatus {
		t.Helper()
		tm := &v1beta1.NstanceMachineTemplate{ObjectMeta: w.meta(name)}
		tm.Spec.Template.Spec = spec
		w.create(tm)
		key := client.ObjectKeyFromObject(tm)
		for range 2 {
			if _, err := templates.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.api.Get(t.Context(), key, tm); err != nil {
			t.Fatal(err)
		}
		return tm.Status
	}
	w.fleet.change("a", func(s *fakeShard) { delete(s.groups, "web") })
	s := show("web", v1beta1.NstanceMachineSpec{Group: "web"})
	if s.Capacity.Cpu().MilliValue() != 4000 || s.Capacity.Memory().Value() != 8<<30 || s.NodeInfo.Architecture != "arm64" {
		t.Errorf("status %+v", s)
	}
	if len(w.writes) != 1 {
		t.Errorf("writes %v, want one", w.writes)
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
