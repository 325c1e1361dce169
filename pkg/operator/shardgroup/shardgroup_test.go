package shardgroup_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const instance, otherInstance = "knd01hf7yat00e00r0000000000g0", "knd01hf7yat00e00r0000000000g2"

// TestScale: a group without differences is only shown. A change is pushed, shown when the
// shard has accepted it, and shown again when the instances run.
func TestScale(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(2))
	a := f.shards.Shard("a")
	etag := a.Group("web").GetEtag()
	o := f.object("web", "a", 2)
	f.create(o)
	f.start()
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if n := f.upserts("a"); len(n) > 0 {
		t.Fatalf("pushed %v", n)
	}
	if st := o.Status; st.ObservedGeneration != o.Generation || !*st.IsStatic || *st.Config.StaticSize != 2 || st.Config.Template != "knd" ||
		*st.ActualSize != 2 || st.LastSyncTime == nil || st.Config.ETag != etag {
		t.Errorf("status %+v", st)
	}
	a.NoRoom(true)
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(5)) })
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady); c.Message != "2 of 5 instances are running" {
		t.Errorf("message %q", c.Message)
	}
	a.SetCondition("web", "Ready", true, "AwaitingFiles", "2 of 5 instances run, 3 are pending; 1 of them without their files")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "AwaitingFiles")
	a.SetCondition("web", "Ready", false, "", "")
	a.SetCondition("web", "StorageUnreachable", true, "NoAnswer", "no write to object storage has succeeded since 03:12")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NoAnswer")
	a.SetCondition("web", "StorageUnreachable", false, "", "")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	all := f.upserts("a")
	if len(all) != 1 || all[0].GetSize() != 5 || all[0].GetIfEtag() != etag || all[0].Template != nil {
		t.Errorf("pushed %v", all)
	}
	a.NoRoom(false)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	a.NoRoom(true)
	a.Upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: new("large")})
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "Rotating")
	a.SetCondition("web", "Rotating", true, "AwaitsSettled", "5 of 5 instances are outdated; the next waits for one to settle")
	f.awaitReady(o, "Rotating", "waits for one to settle")
	a.SetCondition("web", "Rotating", false, "", "")
	a.NoRoom(false)
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	a.Upsert(&nstancev1.UpsertGroupRequest{Key: "web", InstanceType: new("larger"), RolloutPaused: new(true)})
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "RolloutPaused")
	a.Upsert(&nstancev1.UpsertGroupRequest{Key: "web", RolloutPaused: new(false)})
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	a.SetCondition("web", "RolloutAborted", true, "AnotherDefinition", "a definition that is not asked for is refused")
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	a.SetCondition("web", "RolloutAborted", true, "Refused", "definition a, which is asked for, is refused")
	f.awaitReady(o, "RolloutAborted", "which is asked for, is refused")
}

// TestCreateGroup: a missing group is created with all fields of the spec; without a template
// it can't be, and a condition says so.
func TestCreateGroup(t *testing.T) {
	f := newFixture(t, "a")
	f.start()
	o := f.object("web", "a", 2)
	f.create(o)
	f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "NoSuchGroup")
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Template = "knd" })
	f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionTrue, "Valid")
	all := f.upserts("a")
	if len(all) != 1 || all[0].GetTemplate() != "knd" || all[0].GetSize() != 2 || all[0].IfEtag == nil || all[0].GetIfEtag() != "" {
		t.Errorf("pushed %v", all)
	}
}

// TestConflict: after another client's change, the change is decided again on the current
// state.
func TestConflict(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(2))
	f.shards.Shard("a").NoRoom(true)
	f.shards.Shard("a").Race(3)
	o := f.object("web", "a", 4)
	f.create(o)
	f.start()
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	all := f.upserts("a")
	// If the stream is late, the same call is repeated after a pause.
	each := slices.CompactFunc(slices.Clone(all), func(a, b *nstancev1.UpsertGroupRequest) bool { return proto.Equal(a, b) })
	if len(all) < 4 || len(each) > 4 {
		t.Errorf("%d calls, %d of them different, want 4: %v", len(all), len(each), all)
	}
}

// TestRefused: a condition has the shard's message, and the call is retried with a growing
// back-off until something changes.
func TestRefused(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(2))
	a := f.shards.Shard("a")
	a.Fail("UpsertGroup", status.Error(codes.InvalidArgument, "invalid group: size: too large"), -1)
	began := time.Now()
	o := f.object("web", "a", 400)
	f.create(o)
	f.now = func() time.Time { return began } // so that no back-off ends
	stop := f.start()
	f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "Refused")
	if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionConfigValid); c.Message != "invalid group: size: too large" {
		t.Errorf("message %q", c.Message)
	}
	if o.Status.ObservedGeneration == o.Generation {
		t.Error("the refused generation counts as observed")
	}
	f.awaitEvent(o, "Refused")
	for n := range 100 { // events of the shard do not end the back-off
		a.SetCondition("web", "Degraded", n%2 == 0, "Some", "")
		f.shards.Heard()
	}
	if n := len(f.upserts("a")); n != 1 {
		t.Errorf("%d calls before the end of the first back-off", n)
	}
	stop()
	f.now = time.Now
	f.start()
	f.eventually("the call is repeated", func() error {
		if n := len(f.upserts("a")); n < 4 {
			return fmt.Errorf("%d calls", n)
		}
		return nil
	})
	a.Fail("UpsertGroup", nil, 0)
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(4)) })
	f.awaitCondition(o, v1beta1.ConditionConfigValid, metav1.ConditionTrue, "Valid")
}

// TestVars are pushed when they differ, and removed when the spec no longer has them, while
// those of the template stay.
func TestVars(t *testing.T) {
	f := newFixture(t, "a")
	a := f.shards.Shard("a")
	a.Template("knd", map[string]any{"base": "x"})
	f.addGroup("a", staticGroup(2))
	o := f.object("web", "a", 2)
	o.Spec.Vars = v1beta1.Vars{"a": apiextensionsv1.JSON{Raw: []byte(`1`)}, "b": apiextensionsv1.JSON{Raw: []byte(`{"c": "<d>"}`)}}
	f.create(o)
	stop := f.start()
	expect := func(what string, calls int, want string) {
		t.Helper()
		f.eventually(what, func() error {
			got := fmt.Sprint(a.Group("web").GetVars().AsMap())
			if n := len(f.upserts("a")); n != calls || got != want {
				return fmt.Errorf("%d calls, vars %s", n, got)
			}
			return nil
		})
		f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	}
	expect("pushed", 1, "map[a:1 b:map[c:<d>] base:x]")
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { delete(o.Spec.Vars, "a") })
	expect("one removed", 2, "map[b:map[c:<d>] base:x]")
	f.awaitObserved(o)
	stop()
	a.NoRoom(true)
	f.start()
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if all := f.upserts("a"); len(all) != 3 || all[2].Vars != nil {
		t.Errorf("the next operator pushed %v", all)
	}
	a.NoRoom(false)
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Vars = nil })
	expect("all removed", 4, "map[base:x]")
}

// TestSurge: maxSurge is pushed, and removed once when the spec no longer has it, also by the
// next operator.
func TestSurge(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(2))
	o := f.object("web", "a", 2)
	o.Spec.Rotation.MaxSurge = new(intstr.FromString("50%"))
	f.create(o)
	stop := f.start()
	expect := func(pushed ...string) {
		t.Helper()
		f.eventually(fmt.Sprintf("%q are pushed", pushed), func() error {
			var got []string
			for _, r := range f.upserts("a") {
				if r.MaxSurge != nil {
					got = append(got, r.GetMaxSurge())
				}
			}
			if err := f.get(o); err != nil || !slices.Equal(got, pushed) || o.Status.ObservedGeneration != o.Generation {
				return fmt.Errorf("pushed %q, generation %d of %d observed: %w", got, o.Status.ObservedGeneration, o.Generation, err)
			}
			return nil
		})
		f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	}
	expect("50%")
	stop()
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Rotation.MaxSurge = nil })
	stop = f.start()
	expect("50%", "")
	f.eventually("the annotation is removed", func() error {
		if err := f.get(o); err != nil || len(o.Annotations) > 0 {
			return fmt.Errorf("annotations %v: %w", o.Annotations, err)
		}
		return nil
	})
	stop()
	f.start()
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.InstanceType = "large" })
	expect("50%", "")
}

// TestRemove: the instances in spec.remove are sent once, with the size, and not again by the
// next operator.
func TestRemove(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(3))
	id := f.shards.Shard("a").Group("web").GetInstances()[1].GetId()
	o := f.object("web", "a", 3)
	f.create(o)
	stop := f.start()
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	f.eventually("the shard has no instance "+otherInstance, func() error {
		if !f.shards.Set.Missing("a", "web", otherInstance) {
			return errors.New("not confirmed yet")
		}
		return nil
	})
	f.edit(o, func(o *v1beta1.NstanceShardGroup) {
		o.Spec.Size, o.Spec.Remove = new(int32(2)), []v1beta1.InstanceID{v1beta1.InstanceID(id), otherInstance}
	})
	f.awaitObserved(o)
	all := f.upserts("a")
	if len(all) != 1 || len(all[0].GetRemove()) != 1 || all[0].GetRemove()[0] != id || all[0].GetSize() != 2 {
		t.Fatalf("pushed %v", all)
	}
	stop()
	f.start() // while it drains
	f.awaitCondition(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if n := len(f.upserts("a")); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// TestPaused: nothing is pushed while the object or its Cluster is paused.
func TestPaused(t *testing.T) {
	f := newFixture(t, "a")
	f.addGroup("a", staticGroup(2))
	c := f.createCluster()
	c.Spec.Paused = new(true)
	f.must(f.client.Update(t.Context(), c))
	o := f.object("web", "a", 7)
	f.create(o)
	f.start()
	f.awaitCondition(o, v1beta1.ConditionPaused, metav1.ConditionTrue, "Paused")
	if len(o.Finalizers) > 0 || o.Status.Config.Size != nil || len(f.upserts("a")) > 0 {
		t.Errorf("while paused: %+v, %v", o, f.upserts("a"))
	}
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	f.must(f.get(c))
	c.Spec.Paused = new(false)
	f.must(f.client.Update(t.Context(), c))
	f.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Annotations = nil })
	f.awaitCondition(o, v1beta1.ConditionPaused, metav1.ConditionFalse, "NotPaused")
	if all := f.upserts("a"); len(all) != 1 || all[0].GetSize() != 7 {
		t.Errorf("pushed %v", all)
	}
}
