package shardgroup_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const instance = "knd01hf7yat00e00r0000000000g0"

func web(size int32) *nstancev1.GroupStatus {
	return &nstancev1.GroupStatus{Key: "web", Size: size, Template: "knd", InstanceType: "small", SubnetPool: "workers", MaxSurge: "1",
		IsStatic: true, StaticSize: 2, ActualSize: size, UpToDateSize: size}
}

// TestScale: what is as it is wanted is only shown; a change is pushed, and shown when
// the shard has it, and again when the instances are there.
func TestScale(t *testing.T) {
	s := newSite(t, "a")
	s.has("a", web(2))
	o := s.object("web", "a", 2)
	s.create(o)
	s.start()
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if n := s.shards.upserts("a"); len(n) > 0 {
		t.Fatalf("pushed %v", n)
	}
	if st := o.Status; st.ObservedGeneration != o.Generation || !*st.IsStatic || *st.Config.StaticSize != 2 || st.Config.Template != "knd" ||
		*st.ActualSize != 2 || st.LastSyncTime == nil || st.Config.ETag != "e1" {
		t.Errorf("status %+v", st)
	}
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(5)) })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady); c.Message != "2 of 5 instances run" {
		t.Errorf("it says %q", c.Message)
	}
	all := s.shards.upserts("a")
	if len(all) != 1 || all[0].GetSize() != 5 || all[0].GetIfEtag() != "e1" || all[0].Template != nil {
		t.Errorf("pushed %v", all)
	}
	s.shards.change("a", func(x *shardState) { x.groups["web"].ActualSize = 5 })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "Rotating")
	s.shards.change("a", func(x *shardState) { x.groups["web"].UpToDateSize = 5 })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
}

// TestMakesAGroup that is not there, with all that is wanted of it; without a template it
// can't, and says so.
func TestMakesAGroup(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.object("web", "a", 2)
	s.create(o)
	s.awaits(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "NoSuchGroup")
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Template = "knd" })
	s.awaits(o, v1beta1.ConditionConfigValid, metav1.ConditionTrue, "Valid")
	all := s.shards.upserts("a")
	if len(all) != 1 || all[0].GetTemplate() != "knd" || all[0].GetSize() != 2 || all[0].IfEtag == nil || all[0].GetIfEtag() != "" {
		t.Errorf("pushed %v", all)
	}
}

// TestSomebodyElseWasFaster: it is decided again, on what is there then.
func TestSomebodyElseWasFaster(t *testing.T) {
	s := newSite(t, "a")
	s.has("a", web(2))
	s.shards.change("a", func(x *shardState) { x.races = 3 })
	o := s.object("web", "a", 4)
	s.create(o)
	s.start()
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if n := len(s.shards.upserts("a")); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
}

// TestRefused: the object says so in the shard's words, and asks less and less often,
// until something changes.
func TestRefused(t *testing.T) {
	s := newSite(t, "a")
	s.has("a", web(2))
	s.shards.change("a", func(x *shardState) { x.refuses = status.Error(codes.InvalidArgument, "invalid group: size: too large") })
	o := s.object("web", "a", 400)
	s.create(o)
	s.start()
	s.awaits(o, v1beta1.ConditionConfigValid, metav1.ConditionFalse, "Refused")
	if c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionConfigValid); c.Message != "invalid group: size: too large" {
		t.Errorf("it says %q", c.Message)
	}
	if o.Status.ObservedGeneration == o.Generation {
		t.Error("the shard has not taken it")
	}
	s.awaitsEvent(o, "Refused")
	for range 100 { // whatever the shard tells
		s.shards.change("a", func(*shardState) {})
	}
	if n := len(s.shards.upserts("a")); n > 8 {
		t.Errorf("asked %d times", n)
	}
	s.shards.change("a", func(x *shardState) { x.refuses = nil })
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(4)) })
	s.awaits(o, v1beta1.ConditionConfigValid, metav1.ConditionTrue, "Valid")
}

// TestVars are pushed when they differ, and taken back when they are wanted no more,
// while those of the template stay.
func TestVars(t *testing.T) {
	s := newSite(t, "a")
	g := web(2)
	g.Vars, _ = structpb.NewStruct(map[string]any{"base": "x"})
	s.has("a", g)
	s.shards.change("a", func(x *shardState) { x.base["web"] = map[string]any{"base": "x"} })
	o := s.object("web", "a", 2)
	o.Spec.Vars = v1beta1.Vars{"a": apiextensionsv1.JSON{Raw: []byte(`1`)}, "b": apiextensionsv1.JSON{Raw: []byte(`{"c": "<d>"}`)}}
	s.create(o)
	stop := s.start()
	expect := func(what string, calls int, want string) {
		t.Helper()
		s.eventually(what, func() error {
			got := fmt.Sprint(s.shards.Group("a", "web").GetVars().AsMap())
			if n := len(s.shards.upserts("a")); n != calls || got != want {
				return fmt.Errorf("%d calls, vars %s", n, got)
			}
			return nil
		})
		s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	}
	expect("pushed", 1, "map[a:1 b:map[c:<d>] base:x]")
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { delete(o.Spec.Vars, "a") })
	expect("fewer", 2, "map[b:map[c:<d>] base:x]")
	s.eventually("it is written down", func() error {
		if err := s.get(o); err != nil || o.Status.ObservedGeneration != o.Generation {
			return fmt.Errorf("generation %d, seen %d: %w", o.Generation, o.Status.ObservedGeneration, err)
		}
		return nil
	})
	stop()
	s.start()
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if all := s.shards.upserts("a"); len(all) != 3 || all[2].Vars != nil {
		t.Errorf("the next operator pushed %v", all)
	}
	s.shards.change("a", func(x *shardState) { x.groups["web"].ActualSize, x.groups["web"].UpToDateSize = 3, 3 })
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Vars = nil })
	expect("taken back", 4, "map[base:x]")
}

// TestSurge is pushed, and taken back, once, when it is wanted no more: by the next
// operator, too.
func TestSurge(t *testing.T) {
	s := newSite(t, "a")
	s.has("a", web(2))
	o := s.object("web", "a", 2)
	o.Spec.Rotation.MaxSurge = new(intstr.FromString("50%"))
	s.create(o)
	stop := s.start()
	expect := func(pushed ...string) {
		t.Helper()
		s.eventually(fmt.Sprintf("%q are pushed", pushed), func() error {
			var got []string
			for _, r := range s.shards.upserts("a") {
				if r.MaxSurge != nil {
					got = append(got, r.GetMaxSurge())
				}
			}
			if err := s.get(o); err != nil || !slices.Equal(got, pushed) || o.Status.ObservedGeneration != o.Generation {
				return fmt.Errorf("it is %q, generation %d of %d, %w", got, o.Status.ObservedGeneration, o.Generation, err)
			}
			return nil
		})
		s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	}
	expect("50%")
	stop()
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Rotation.MaxSurge = nil })
	stop = s.start()
	expect("50%", "")
	s.eventually("it is forgotten", func() error {
		if err := s.get(o); err != nil || len(o.Annotations) > 0 {
			return fmt.Errorf("annotations %v, %w", o.Annotations, err)
		}
		return nil
	})
	stop()
	s.start()
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.InstanceType = "large" })
	expect("50%", "")
}

// TestRemove: who leaves is named once, with the size, and not again by the next
// operator.
func TestRemove(t *testing.T) {
	s := newSite(t, "a")
	s.has("a", web(3))
	s.shards.change("a", func(x *shardState) { x.living[instance] = true })
	o := s.object("web", "a", 3)
	s.create(o)
	stop := s.start()
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	s.edit(o, func(o *v1beta1.NstanceShardGroup) {
		o.Spec.Size, o.Spec.Remove = new(int32(2)), []v1beta1.InstanceID{instance, "knd01hf7yat00e00r0000000000g2"}
	})
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	all := s.shards.upserts("a")
	if len(all) != 1 || len(all[0].GetRemove()) != 1 || all[0].GetRemove()[0] != instance || all[0].GetSize() != 2 {
		t.Fatalf("pushed %v", all)
	}
	stop()
	s.shards.change("a", func(x *shardState) { x.living[instance] = true }) // it drains
	s.start()
	s.shards.change("a", func(x *shardState) { x.groups["web"].ActualSize, x.groups["web"].UpToDateSize = 2, 2 })
	s.awaits(o, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready")
	if n := len(s.shards.upserts("a")); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// TestPaused: nothing is pushed while the object or its Cluster is paused.
func TestPaused(t *testing.T) {
	s := newSite(t, "a")
	s.has("a", web(2))
	c := s.cluster()
	c.Spec.Paused = new(true)
	s.must(s.client.Update(t.Context(), c))
	o := s.object("web", "a", 7)
	s.create(o)
	s.start()
	s.awaits(o, v1beta1.ConditionPaused, metav1.ConditionTrue, "Paused")
	if len(o.Finalizers) > 0 || o.Status.Config.Size != nil || len(s.shards.upserts("a")) > 0 {
		t.Errorf("although it is paused: %+v, %v", o, s.shards.upserts("a"))
	}
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	s.must(s.get(c))
	c.Spec.Paused = new(false)
	s.must(s.client.Update(t.Context(), c))
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Annotations = nil })
	s.awaits(o, v1beta1.ConditionPaused, metav1.ConditionFalse, "NotPaused")
	if all := s.shards.upserts("a"); len(all) != 1 || all[0].GetSize() != 7 {
		t.Errorf("pushed %v", all)
	}
}
