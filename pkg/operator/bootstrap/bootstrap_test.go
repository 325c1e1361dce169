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
	f := newFixture(t, "b", "a")
	for shard, size := range map[string]int32{"a": 4, "b": 3} {
		f.has(shard, "web", size, &nstancev1.UpsertGroupRequest{
			InstanceType: new("small"), SubnetPool: new("private"), Vars: vars(t, map[string]any{"n": 1, "o": map[string]any{"p": []any{"x"}}}),
		})
	}
	f.has("a", "db", 2, &nstancev1.UpsertGroupRequest{InstanceType: new("small"), SubnetPool: new("private")})
	f.has("b", "db", 1, &nstancev1.UpsertGroupRequest{
		InstanceType: new("large"), SubnetPool: new("private"), Vars: vars(t, map[string]any{"n": 2}),
	})
	f.shards.Shard("b").Static("static", 0, "knd")
	f.shards.Shard("a").SetTiming(func(timing *shardstest.Timing) { timing.Drain = time.Hour })
	f.has("a", "gone", 1, nil)
	f.shards.Shard("a").Delete("gone") // it is drained for an hour
	f.set = undefined{f.set}
	f.shards.Run()
	f.start()
	infra, pools := f.become("db", "static", "web")

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
	f := newFixture(t, "a", "b")
	f.has("a", "web", 2, nil)
	f.has("b", "web", 3, nil)
	f.shards.Shard("b").Stop()
	f.shards.Run()
	f.start()
	f.stay()
	f.shards.Shard("b").Start()
	_, pools := f.become("web")
	if n := *pools["web"].Spec.Replicas; n != 5 {
		t.Errorf("%d replicas, want 5", n)
	}
	// The state of an unreachable shard may be outdated.
	f.shards.Shard("b").Stop()
	shardstest.Eventually(t, "the loss is noticed", func() bool { b, _ := f.shards.Set.State("b"); return !b.Synced })
	f.has("a", "later", 1, nil)
	f.stay("web")
	f.shards.Shard("b").Start()
	f.become("later", "web")
}

// A newly configured shard is contacted before anything is created, and its groups are
// imported.
func TestAShardThatIsAddedIsImported(t *testing.T) {
	f := newFixture(t, "a")
	f.has("a", "web", 2, nil)
	f.shards.Run()
	f.start()
	f.become("web")
	f.shards.Add("b")
	f.has("b", "web", 2, nil)
	f.has("b", "api", 2, nil)
	f.shards.Configure("a", "b")
	infra, _ := f.become("api", "web")
	if s := infra["web"].Spec.Shards; !slices.Equal(s, []v1beta1.Name{"a"}) {
		t.Errorf("web is on %v: its pool is not ours to change", s)
	}
}

// After the import Kubernetes defines the pool: nothing is written again.
func TestWhatIsThereIsLeftAlone(t *testing.T) {
	f := newFixture(t, "a")
	own := &v1beta1.NstanceMachinePool{
		ObjectMeta: f.meta("mine"), Spec: v1beta1.NstanceMachinePoolSpec{Group: "api", Shards: []v1beta1.Name{"a"}},
	}
	f.make(own)
	f.has("a", "api", 2, nil)
	f.has("a", "web", 2, nil)
	f.shards.Run()
	f.start()
	var web clusterv1.MachinePool
	planetest.Eventually(t, soon, "web is imported", func(ctx context.Context) error {
		return errors.Join(
			f.Client.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "web"}, &web),
			f.Client.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "web"}, &v1beta1.NstanceMachinePool{}))
	})
	f.patch(&web, func() { web.Spec.Replicas = new(int32(9)) })
	f.has("a", "web", 5, nil)
	check := func(ctx context.Context) error {
		infra, pools, err := f.pools(ctx)
		if err != nil {
			return err
		}
		if len(infra) != 2 || len(pools) != 1 || pools["web"].ResourceVersion != web.ResourceVersion {
			return fmt.Errorf("%d and %d pools, web has %d replicas", len(infra), len(pools), *pools["web"].Spec.Replicas)
		}
		return nil
	}
	planetest.Consistently(t, second, "nothing is written", check)
	f.stop()
	f.start()
	planetest.Consistently(t, second, "nothing is written", check)
}

// A static group outlives its pool and is imported again only after a restart. A group that
// was gone from all shards counts as new when it returns.
func TestADeletedPoolStaysDeleted(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.shards.Shard("a").Static("web", 2, "knd")
	f.shards.Run()
	f.start()
	infra, pools := f.become("web")
	part := &v1beta1.NstanceShardGroup{
		ObjectMeta: f.meta("web--a"), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: "a", Size: new(int32(2))},
	}
	part.Finalizers = []string{v1beta1.Finalizer}
	f.make(part)
	drop := func() {
		i, p := infra["web"], pools["web"]
		f.delete(&i)
		f.delete(&p)
	}
	drop()
	f.delete(part)
	f.become()
	f.stay()
	f.stop()
	f.start()
	f.stay() // the part on the shard is still being deleted
	f.patch(part, func() { part.Finalizers = nil })
	infra, pools = f.become("web")

	const again = "group web: 2 replicas on [a]; a shard's static config names it, so the operator's next start imports it again " +
		"if its pool is deleted"
	f.tells("Imported", again, again)

	drop()
	f.become()
	f.stay()
	f.shards.Shard("a").Dynamic("web")
	f.stay()
	f.shards.Shard("a").Delete("web")
	shardstest.Eventually(t, "the group is gone", func() bool { return f.shards.Set.Group("a", "web") == nil })
	f.stay()
	f.has("a", "another", 1, nil)
	f.become("another") // by a pass that has seen no group web
	f.has("b", "web", 1, nil)
	infra, _ = f.become("another", "web")
	if s := infra["web"].Spec.Shards; !slices.Equal(s, []v1beta1.Name{"b"}) {
		t.Errorf("on the shards %v", s)
	}
}

func TestAClusterThatGoesOrIsPausedGetsNoPools(t *testing.T) {
	f := newFixture(t, "a")
	f.has("a", "web", 2, nil)
	f.shards.Run()
	c := &clusterv1.Cluster{ObjectMeta: f.meta(cluster)}
	f.patch(c, func() { c.Spec.Paused = new(true) })
	f.start()
	f.stay()
	f.patch(c, func() { c.Finalizers, c.Spec.Paused = []string{clusterv1.ClusterFinalizer}, nil })
	f.become("web")
	f.delete(c)
	f.sees(c) // otherwise the operator may see the next event first
	f.has("a", "later", 2, nil)
	f.stay("web")
	f.patch(c, func() { c.Finalizers = nil })
	f.stay("web")
}

// dying is a client of an operator that is killed after creating that many objects.
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
	f := newFixture(t, "a")
	f.has("a", "web", 2, nil)
	f.shards.Run()
	f.wrap = func(c client.Client) client.Client {
		d := &dying{Client: c}
		d.left.Store(1)
		return d
	}
	f.start()
	var pool clusterv1.MachinePool
	planetest.Eventually(t, soon, "the MachinePool is there", func(ctx context.Context) error {
		return f.Client.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "web"}, &pool)
	})
	f.stop()
	f.patch(&pool, func() { pool.Spec.Replicas = new(int32(5)) }) // another writer was faster
	f.wrap = nil
	f.start()
	_, pools := f.become("web")
	if n := *pools["web"].Spec.Replicas; n != 5 {
		t.Errorf("%d replicas, want 5", n)
	}
}

// An existing object with a group's name is not changed: one event says so, and the other
// groups are imported.
func TestATakenNameIsTold(t *testing.T) {
	f := newFixture(t, "a")
	for _, group := range []string{"web", "api", "own"} {
		f.has("a", group, 2, nil)
	}
	f.shards.Run()
	foreign := func(name, kind string) {
		o := &clusterv1.MachinePool{ObjectMeta: f.meta(name)}
		o.Spec.ClusterName, o.Spec.Template.Spec.ClusterName = cluster, cluster
		o.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: kind, Name: name}
		o.Spec.Template.Spec.Bootstrap.DataSecretName = new("")
		f.make(o)
	}
	foreign("web", "OtherMachinePool")
	foreign("own", "NstanceMachinePool") // its creator will create the other object
	f.start()
	f.tells("NotImported", "group web: the MachinePool web already exists with another infrastructure: rename one of the two")
	planetest.Eventually(t, soon, "the other group is imported", func(ctx context.Context) error {
		infra, _, err := f.pools(ctx)
		if err == nil && len(infra) == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	infra, _, err := f.pools(t.Context())
	if err != nil || len(infra) != 1 || infra["api"].Spec.Group != "api" {
		t.Errorf("%v: %d NstanceMachinePools", err, len(infra))
	}
}
