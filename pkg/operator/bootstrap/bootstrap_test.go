package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	eventsv1 "k8s.io/api/events/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const second = time.Second

func vars(t *testing.T, of map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(of)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGroupsOfAllShardsAreImported(t *testing.T) {
	w := begin(t, "b", "a")
	for shard, size := range map[string]int32{"a": 4, "b": 3} {
		w.has(shard, "web", size, &nstancev1.UpsertGroupRequest{
			InstanceType: new("small"), SubnetPool: new("private"), Vars: vars(t, map[string]any{"n": 1, "o": map[string]any{"p": []any{"x"}}}),
		})
	}
	w.has("a", "db", 2, &nstancev1.UpsertGroupRequest{InstanceType: new("small"), SubnetPool: new("private")})
	w.has("b", "db", 1, &nstancev1.UpsertGroupRequest{
		InstanceType: new("large"), SubnetPool: new("private"), Vars: vars(t, map[string]any{"n": 2}),
	})
	w.shards.Shard("b").Static("static", 0, "knd")
	w.shards.Shard("a").SetTiming(func(timing *shardstest.Timing) { timing.Drain = time.Hour })
	w.has("a", "gone", 1, nil)
	w.lose("a", "gone") // it is emptied for an hour
	w.set = undefined{w.set}
	w.shards.Run()
	w.start()
	infra, pools := w.become("db", "static", "web")

	for name, want := range map[string]v1beta1.NstanceMachinePoolSpec{
		"web":    {Group: "web", Shards: []v1beta1.Name{"a", "b"}, Template: "knd", InstanceType: "small", SubnetPool: "private"},
		"db":     {Group: "db", Shards: []v1beta1.Name{"a", "b"}, Template: "knd", SubnetPool: "private"},
		"static": {Group: "static", Shards: []v1beta1.Name{"b"}},
	} {
		is := infra[name].Spec
		is.Vars = nil
		if fmt.Sprintf("%+v", is) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: %+v, want %+v", name, is, want)
		}
	}
	if v := infra["web"].Spec.Vars; len(v) != 2 || string(v["n"].Raw) != "1" || string(v["o"].Raw) != `{"p":["x"]}` {
		t.Errorf("vars %s", v)
	}
	if len(infra["db"].Spec.Vars) != 0 {
		t.Errorf("vars on which the shards differ: %s", infra["db"].Spec.Vars)
	}
	for name, replicas := range map[string]int32{"web": 7, "db": 3, "static": 0} {
		p := pools[name]
		if *p.Spec.Replicas != replicas || p.Spec.ClusterName != cluster || p.Labels[clusterv1.ClusterNameLabel] != cluster {
			t.Errorf("%s: %d replicas in %s, %v", name, *p.Spec.Replicas, p.Spec.ClusterName, p.Labels)
		}
		if b := p.Spec.Template.Spec.Bootstrap.DataSecretName; b == nil || *b != "" {
			t.Errorf("%s: bootstrap %v", name, b)
		}
		want := clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachinePool", Name: name}
		if p.Spec.Template.Spec.InfrastructureRef != want {
			t.Errorf("%s: %+v", name, p.Spec.Template.Spec.InfrastructureRef)
		}
	}
}

func TestNothingIsMadeBeforeEveryShardHasAnswered(t *testing.T) {
	w := begin(t, "a", "b")
	w.has("a", "web", 2, nil)
	w.has("b", "web", 3, nil)
	w.shards.Shard("b").Stop()
	w.shards.Run()
	w.start()
	w.stay()
	w.shards.Shard("b").Start()
	_, pools := w.become("web")
	if n := *pools["web"].Spec.Replicas; n != 5 {
		t.Errorf("%d replicas, want 5", n)
	}
	// What a shard told before it was lost may be different by now.
	w.shards.Shard("b").Stop()
	shardstest.Eventually(t, "the loss is noticed", func() bool { b, _ := w.shards.Set.State("b"); return !b.Synced })
	w.has("a", "later", 1, nil)
	w.stay("web")
	w.shards.Shard("b").Start()
	w.become("later", "web")
}

// A shard that the configuration names from now on is asked before anything is made,
// and what it has is imported.
func TestAShardThatIsAddedIsImported(t *testing.T) {
	w := begin(t, "a")
	w.has("a", "web", 2, nil)
	w.shards.Run()
	w.start()
	w.become("web")
	w.shards.Add("b")
	w.has("b", "web", 2, nil)
	w.has("b", "api", 2, nil)
	w.shards.Configure("a", "b")
	infra, _ := w.become("api", "web")
	if s := infra["web"].Spec.Shards; !slices.Equal(s, []v1beta1.Name{"a"}) {
		t.Errorf("web is on %v: its pool is not ours to change", s)
	}
}

// From the import on Kubernetes says what there is: nothing is written again.
func TestWhatIsThereIsLeftAlone(t *testing.T) {
	w := begin(t, "a")
	own := &v1beta1.NstanceMachinePool{
		ObjectMeta: w.meta("mine"), Spec: v1beta1.NstanceMachinePoolSpec{Group: "api", Shards: []v1beta1.Name{"a"}},
	}
	w.make(own)
	w.has("a", "api", 2, nil)
	w.has("a", "web", 2, nil)
	w.shards.Run()
	w.start()
	var web clusterv1.MachinePool
	planetest.Eventually(t, soon, "web is imported", func(ctx context.Context) error {
		return errors.Join(
			w.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "web"}, &web),
			w.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "web"}, &v1beta1.NstanceMachinePool{}))
	})
	w.patch(&web, func() { web.Spec.Replicas = new(int32(9)) })
	w.has("a", "web", 5, nil)
	check := func(ctx context.Context) error {
		infra, pools, err := w.pools(ctx)
		if err != nil {
			return err
		}
		if len(infra) != 2 || len(pools) != 1 || pools["web"].ResourceVersion != web.ResourceVersion {
			return fmt.Errorf("%d and %d pools, web has %d replicas", len(infra), len(pools), *pools["web"].Spec.Replicas)
		}
		return nil
	}
	planetest.Consistently(t, second, "nothing is written", check)
	w.stop()
	w.start()
	planetest.Consistently(t, second, "nothing is written", check)
}

// A static group outlives its pool: it comes back with the next operator only. One
// that was gone from all shards is another one when it comes again.
func TestADeletedPoolStaysDeleted(t *testing.T) {
	w := begin(t, "a", "b")
	w.shards.Shard("a").Static("web", 2, "knd")
	w.shards.Run()
	w.start()
	infra, pools := w.become("web")
	part := &v1beta1.NstanceShardGroup{
		ObjectMeta: w.meta("web--a"), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: "a", Size: new(int32(2))},
	}
	part.Finalizers = []string{v1beta1.Finalizer}
	w.make(part)
	drop := func() {
		i, p := infra["web"], pools["web"]
		w.delete(&i)
		w.delete(&p)
	}
	drop()
	w.delete(part)
	w.become()
	w.stay()
	w.stop()
	w.start()
	w.stay() // the part on the shard is still being deleted
	w.patch(part, func() { part.Finalizers = nil })
	infra, pools = w.become("web")

	drop()
	w.become()
	w.stay()
	w.shards.Shard("a").Dynamic("web")
	w.stay()
	w.lose("a", "web")
	shardstest.Eventually(t, "the group is gone", func() bool { return w.shards.Set.Group("a", "web") == nil })
	w.stay()
	w.has("b", "web", 1, nil)
	infra, _ = w.become("web")
	if s := infra["web"].Spec.Shards; !slices.Equal(s, []v1beta1.Name{"b"}) {
		t.Errorf("on the shards %v", s)
	}
}

func TestAClusterThatGoesOrIsPausedGetsNoPools(t *testing.T) {
	w := begin(t, "a")
	w.has("a", "web", 2, nil)
	w.shards.Run()
	c := &clusterv1.Cluster{ObjectMeta: w.meta(cluster)}
	w.patch(c, func() { c.Spec.Paused = new(true) })
	w.start()
	w.stay()
	w.patch(c, func() { c.Finalizers, c.Spec.Paused = []string{clusterv1.ClusterFinalizer}, nil })
	w.become("web")
	w.delete(c)
	w.sees(c) // or else what comes next may be earlier for the operator
	w.has("a", "later", 2, nil)
	w.stay("web")
	w.patch(c, func() { c.Finalizers = nil })
	w.stay("web")
}

// dying is a client of an operator that is killed after so many objects made.
type dying struct {
	client.Client
	left atomic.Int32
}

func (d *dying) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if d.left.Add(-1) < 0 {
		return errors.New("killed")
	}
	return d.Client.Create(ctx, o, opts...)
}

func TestAHalfImportIsFinished(t *testing.T) {
	w := begin(t, "a")
	w.has("a", "web", 2, nil)
	w.shards.Run()
	w.wrap = func(c client.Client) client.Client {
		d := &dying{Client: c}
		d.left.Store(1)
		return d
	}
	w.start()
	var pool clusterv1.MachinePool
	planetest.Eventually(t, soon, "the MachinePool is there", func(ctx context.Context) error {
		return w.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "web"}, &pool)
	})
	w.stop()
	w.patch(&pool, func() { pool.Spec.Replicas = new(int32(5)) }) // somebody was quicker
	w.wrap = nil
	w.start()
	_, pools := w.become("web")
	if n := *pools["web"].Spec.Replicas; n != 5 {
		t.Errorf("%d replicas, want 5", n)
	}
}

// What has a group's name already is not touched: an event says so, once, and the
// others are imported.
func TestATakenNameIsTold(t *testing.T) {
	w := begin(t, "a")
	for _, group := range []string{"web", "api", "own"} {
		w.has("a", group, 2, nil)
	}
	w.shards.Run()
	foreign := func(name, kind string) {
		o := &clusterv1.MachinePool{ObjectMeta: w.meta(name)}
		o.Spec.ClusterName, o.Spec.Template.Spec.ClusterName = cluster, cluster
		o.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: kind, Name: name}
		o.Spec.Template.Spec.Bootstrap.DataSecretName = new("")
		w.make(o)
	}
	foreign("web", "OtherMachinePool")
	foreign("own", "NstanceMachinePool") // whoever made it will make the other object
	w.start()
	planetest.Eventually(t, soon, "an event tells it", func(ctx context.Context) error {
		var all eventsv1.EventList
		if err := w.Client.List(ctx, &all, client.InNamespace(w.ns)); err != nil {
			return err
		}
		var notes []string
		for _, e := range all.Items {
			if e.Reason == "NotImported" {
				notes = append(notes, e.Note)
			}
		}
		if want := []string{"group web: the MachinePool web has another infrastructure"}; !slices.Equal(notes, want) {
			return fmt.Errorf("told %q, want %q", notes, want)
		}
		return nil
	})
	infra, _, err := w.pools(t.Context())
	if err != nil || len(infra) != 1 || infra["api"].Spec.Group != "api" {
		t.Errorf("%v: %d NstanceMachinePools", err, len(infra))
	}
}
