package machine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/machine"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/shards"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// live is a world in which the controllers run in a manager, against shards with real
// streams.
type live struct {
	*world
	shards *shardstest.World
}

func runWorld(t *testing.T, names ...string) *live {
	t.Helper()
	return runOn(t, shardstest.Start(t, names...), names...)
}

// runOn does so with shards that are there.
func runOn(t *testing.T, on *shardstest.World, names ...string) *live {
	t.Helper()
	l := &live{world: newWorld(t), shards: on}
	for _, name := range names {
		l.shards.Shard(name).AddGroup("web", 0, "knd")
	}
	l.shards.Synced()
	config := shared.Plane(t).Allowed(t, l.ns, ".")
	config.QPS = -1
	mgr, err := ctrl.NewManager(config, shared.Plane(t).ManagerOptions(l.ns))
	if err != nil {
		t.Fatal(err)
	}
	r := &machine.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Shards: l.shards.Set,
		Recorder: &events.FakeRecorder{}, Random: rand.Reader, Now: time.Now,
	}
	if err := r.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	if err := (&machine.Templates{Client: mgr.GetClient(), Shards: l.shards.Set}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	return l
}

// eventually waits until all NstanceMachines are as they should be.
func (l *live) eventually(what string, check func([]v1beta1.NstanceMachine) error) {
	l.Helper()
	planetest.Eventually(l, time.Minute, what, func(ctx context.Context) error {
		var all v1beta1.NstanceMachineList
		if err := l.api.List(ctx, &all, client.InNamespace(l.ns)); err != nil {
			return err
		}
		return check(all.Items)
	})
}

func allReady(want int) func([]v1beta1.NstanceMachine) error {
	return func(all []v1beta1.NstanceMachine) error {
		ready := 0
		for i := range all {
			if meta.IsStatusConditionTrue(all[i].Status.Conditions, v1beta1.ConditionReady) {
				ready++
			}
		}
		if ready != want || len(all) != want {
			return fmt.Errorf("%d of %d are ready, want %d", ready, len(all), want)
		}
		return nil
	}
}

// instances counts those of a shard that are there.
func (l *live) instances(shard string) int {
	return len(slices.DeleteFunc(l.shards.Shard(shard).Instances("web"), func(i *nstancev1.InstanceStatus) bool {
		return i.GetPhase() == deleted
	}))
}

// many is how many machines TestManyMachines makes.
const many = "NSTANCE_TEST_MACHINES"

// Many machines at once are spread over the shards, and each has one instance. 500 of
// them are to be ready within 30 s.
func TestManyMachines(t *testing.T) {
	l := runWorld(t, "a", "b")
	count := 40
	if n, err := strconv.Atoi(os.Getenv(many)); err == nil {
		count = n
	}
	began := time.Now()
	for i := range count {
		l.own(fmt.Sprintf("m%d", i), nil)
	}
	made := time.Since(began)
	l.eventually("all are ready", allReady(count))
	ready := time.Since(began)
	t.Logf("%d machines were made in %v, and ready after %v", count, made.Round(time.Millisecond), ready.Round(time.Millisecond))
	if a, b := l.instances("a"), l.instances("b"); a != count/2 || b != count/2 {
		t.Errorf("%d and %d instances, want %d each", a, b, count/2)
	}
	for i := range count {
		l.delete(&v1beta1.NstanceMachine{ObjectMeta: l.meta(fmt.Sprintf("m%d", i))})
	}
	for _, shard := range []string{"a", "b"} {
		shardstest.Eventually(t, "their instances drain", func() bool {
			all := l.shards.Shard(shard).Instances("web")
			return !slices.ContainsFunc(all, func(i *nstancev1.InstanceStatus) bool { return i.GetPhase() == running })
		})
		l.drained(shard)
	}
	l.eventually("all are gone", func(all []v1beta1.NstanceMachine) error {
		if len(all) > 0 {
			return fmt.Errorf("%d are left", len(all))
		}
		return nil
	})
}

// drained acknowledges all drains of a shard, which is another controller's part.
func (l *live) drained(shard string) {
	l.Helper()
	for _, i := range l.shards.Shard(shard).Instances("web") {
		if i.GetPhase() == draining {
			if err := l.shards.Set.AcknowledgeDrained(l.Context(), shard, i.GetId()); err != nil {
				l.Fatal(err)
			}
		}
	}
}

// What a shard tells reaches the objects without anybody's asking, and a shard that is
// away holds up no other one.
func TestNewsReachTheObjects(t *testing.T) {
	l := runWorld(t, "a", "b")
	template := &v1beta1.NstanceMachineTemplate{ObjectMeta: l.meta("web")}
	template.Spec.Template.Spec = v1beta1.NstanceMachineSpec{Group: "web"}
	l.create(template)
	at := func(domain string) func(*clusterv1.Machine, *v1beta1.NstanceMachine) {
		return func(m *clusterv1.Machine, _ *v1beta1.NstanceMachine) { m.Spec.FailureDomain = domain }
	}
	l.own("on-a", at("a"))
	l.own("on-b", at("b"))
	l.eventually("both are ready", allReady(2))

	l.shards.Shard("a").Stop()
	l.is("on-a", v1beta1.ConditionShardReachable, no)
	l.own("later-a", at("a"))
	l.own("later-b", at("b"))
	l.is("later-b", v1beta1.ConditionReady, yes)
	l.is("later-a", v1beta1.ConditionReady, no)
	l.shards.Shard("a").Start()
	l.is("later-a", v1beta1.ConditionReady, yes)
	l.is("on-a", v1beta1.ConditionShardReachable, yes)

	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	l.shards.Shard("b").Notice(string(l.get("on-b").Spec.InstanceID), until)
	l.is("on-b", v1beta1.ConditionTerminating, yes)
	l.want(l.get("on-b"), "Terminating", yes, "TerminationNotice", until.Format(time.RFC3339))

	l.shards.Shard("b").Kill(string(l.get("later-b").Spec.InstanceID))
	planetest.Eventually(t, time.Minute, "the Machine of a machine that is gone goes", func(context.Context) error {
		if m := l.owner("later-b"); m.DeletionTimestamp.IsZero() {
			return fmt.Errorf("annotations %v", m.Annotations)
		}
		return nil
	})

	planetest.Eventually(t, time.Minute, "the template shows its capacity", func(ctx context.Context) error {
		err := l.api.Get(ctx, client.ObjectKeyFromObject(template), template)
		if err == nil && template.Status.Capacity.Cpu().IsZero() {
			err = fmt.Errorf("status %+v", template.Status)
		}
		return err
	})
}

// is waits for a condition of one object.
func (l *live) is(name, kind string, status any) {
	l.Helper()
	planetest.Eventually(l, time.Minute, fmt.Sprintf("%s of %s is %v", kind, name, status), func(context.Context) error {
		c := meta.FindStatusCondition(l.get(name).Status.Conditions, kind)
		if c == nil || c.Status != status {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// The answer to the creation is lost, or the shard's server goes in the middle of it:
// there is one instance.
func TestALostAnswerMakesNoSecondInstance(t *testing.T) {
	l := runWorld(t, "a")
	l.shards.Shard("a").Lose("CreateInstance", errCrash, 2)
	l.own("m", nil)
	l.eventually("it is ready", allReady(1))
	calls := l.shards.Shard("a").Calls("CreateInstance")
	if len(calls) < 2 || l.instances("a") != 1 {
		t.Fatalf("%d instances after %d calls", l.instances("a"), len(calls))
	}
	for _, c := range calls {
		if !proto.Equal(c, calls[0]) {
			t.Errorf("calls differ: %v and %v", c, calls[0])
		}
	}
}

// An object that goes before it knows its instance's id waits for the instance's end.
func TestAnObjectThatKnowsOnlyAKeyWaits(t *testing.T) {
	l := runWorld(t, "a")
	l.shards.Shard("a").Lose("CreateInstance", status.Error(codes.InvalidArgument, "lost"), -1)
	m := l.own("m", nil)
	l.is("m", v1beta1.ConditionReady, no)
	shardstest.Eventually(t, "the instance is there", func() bool { return l.instances("a") == 1 })
	l.delete(m)
	shardstest.Eventually(t, "it drains", func() bool { return l.shards.Shard("a").Instances("web")[0].GetPhase() == draining })
	l.is("m", v1beta1.ConditionTerminating, yes)
	l.drained("a")
	l.eventually("it goes", func(all []v1beta1.NstanceMachine) error {
		if len(all) > 0 {
			return fmt.Errorf("status %+v", all[0].Status)
		}
		return nil
	})
}

// A pool's instance is replaced when its Machine is deleted: first comes the new one.
func TestAPoolsShardReplacesFirst(t *testing.T) {
	l := runWorld(t, "a")
	shard := l.shards.Shard("a")
	shard.AddGroup("web", 1, "knd")
	id := ""
	shardstest.Eventually(t, "the group has its instance", func() bool {
		for _, i := range shard.Instances("web") {
			id = i.GetId()
			return i.GetPhase() == running
		}
		return false
	})
	l.create(&v1beta1.NstanceShardGroup{
		ObjectMeta: l.meta("web--a"), Spec: v1beta1.NstanceShardGroupSpec{Group: "web", Shard: "a", Size: new(int32(1))},
	})
	m := l.own("m", func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		m.Labels[clusterv1.MachinePoolNameLabel], nm.Labels[clusterv1.MachinePoolNameLabel] = "web", "web"
		nm.Spec.Shard, nm.Spec.InstanceID = "a", v1beta1.InstanceID(id)
	})
	l.eventually("it is adopted", allReady(1))
	l.delete(m)
	shardstest.Eventually(t, "another one has come, and this one drains", func() bool {
		return shard.Instance(id).GetPhase() == draining && shard.Group("web").GetActualSize() == 1
	})
	if now := l.get("m"); now == nil || !controllerutil.ContainsFinalizer(now, v1beta1.Finalizer) {
		t.Fatalf("it did not wait for its instance: %v", now)
	}
	l.drained("a")
	l.eventually("it goes", func(all []v1beta1.NstanceMachine) error {
		if len(all) > 0 {
			return fmt.Errorf("status %+v", all[0].Status)
		}
		return nil
	})
	if n := len(shard.Calls("DeleteInstance")); n != 1 {
		t.Errorf("DeleteInstance was called %d times, want once", n)
	}
}

var _ machine.Groups = (*shards.Set)(nil)
