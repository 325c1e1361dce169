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

// live is a fixture whose controllers run in a manager.
type live struct{ *fixture }

func newLive(t *testing.T, names ...string) *live {
	t.Helper()
	return newLiveOn(t, shardstest.Start(t, names...), names...)
}

// newLiveOn returns one with existing shards.
func newLiveOn(t *testing.T, on *shardstest.World, names ...string) *live {
	t.Helper()
	l := &live{newFixtureOn(t, on, names...)}
	l.shards.Synced()
	config := shared.Plane(t).Allowed(t, l.ns, ".")
	config.QPS = -1
	mgr, err := ctrl.NewManager(config, shared.Plane(t).ManagerOptions(l.ns))
	if err != nil {
		t.Fatal(err)
	}
	r := &machine.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Shards: l.shards.Set,
		Recorder: &events.FakeRecorder{}, Random: rand.Reader, Jitter: latest, Now: time.Now,
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
			t.Errorf("manager: %v", err)
		}
	})
	return l
}

// eventually waits until check accepts all NstanceMachines.
func (l *live) eventually(what string, check func([]v1beta1.NstanceMachine) error) {
	l.Helper()
	planetest.Eventually(l, planetest.Patience, what, func(ctx context.Context) error {
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

// instanceCount returns the number of a shard's instances, without the deleted ones.
func (l *live) instanceCount(shard string) int {
	return len(slices.DeleteFunc(l.shards.Shard(shard).Instances("web"), func(i *nstancev1.InstanceStatus) bool {
		return i.GetPhase() == deleted
	}))
}

// countVar is the environment variable with the number of machines of TestManyMachines.
const countVar = "NSTANCE_TEST_MACHINES"

// Many machines that are created at once are spread over the shards, and each has one instance.
// The goal is that 500 are ready within 30 s.
func TestManyMachines(t *testing.T) {
	l := newLive(t, "a", "b")
	count := 40
	if n, err := strconv.Atoi(os.Getenv(countVar)); err == nil {
		count = n
	}
	began := time.Now()
	for i := range count {
		l.createMachine(fmt.Sprintf("m%d", i), nil)
	}
	made := time.Since(began)
	l.eventually("all machines are ready", allReady(count))
	ready := time.Since(began)
	t.Logf("%d machines were created in %v and ready after %v", count, made.Round(time.Millisecond), ready.Round(time.Millisecond))
	if a, b := l.instanceCount("a"), l.instanceCount("b"); a != count/2 || b != count/2 {
		t.Errorf("%d and %d instances, want %d each", a, b, count/2)
	}
	for i := range count {
		l.delete(&v1beta1.NstanceMachine{ObjectMeta: l.meta(fmt.Sprintf("m%d", i))})
	}
	for _, shard := range []string{"a", "b"} {
		shardstest.Eventually(t, "the instances drain", func() bool {
			all := l.shards.Shard(shard).Instances("web")
			return !slices.ContainsFunc(all, func(i *nstancev1.InstanceStatus) bool { return i.GetPhase() == running })
		})
		l.acknowledgeDrains(shard)
	}
	l.eventually("all machines are gone", func(all []v1beta1.NstanceMachine) error {
		if len(all) > 0 {
			return fmt.Errorf("%d are left", len(all))
		}
		return nil
	})
}

// acknowledgeDrains acknowledges all drains of a shard, as another controller does.
func (l *live) acknowledgeDrains(shard string) {
	l.Helper()
	for _, i := range l.shards.Shard(shard).Instances("web") {
		if i.GetPhase() == draining {
			if err := l.shards.Set.AcknowledgeDrained(l.Context(), shard, i.GetId()); err != nil {
				l.Fatal(err)
			}
		}
	}
}

// Events of shards update the objects, and an unreachable shard delays no other one.
func TestShardEventsUpdateObjects(t *testing.T) {
	l := newLive(t, "a", "b")
	template := &v1beta1.NstanceMachineTemplate{ObjectMeta: l.meta("web")}
	template.Spec.Template.Spec = v1beta1.NstanceMachineSpec{Group: "web"}
	l.create(template)
	l.createMachine("on-a", inDomain("a"))
	l.createMachine("on-b", inDomain("b"))
	l.eventually("both are ready", allReady(2))

	l.shards.Shard("a").Stop()
	l.awaitCondition("on-a", v1beta1.ConditionShardReachable, no)
	l.createMachine("later-a", inDomain("a"))
	l.createMachine("later-b", inDomain("b"))
	l.awaitCondition("later-b", v1beta1.ConditionReady, yes)
	l.awaitCondition("later-a", v1beta1.ConditionReady, no)
	l.shards.Shard("a").Start()
	l.awaitCondition("later-a", v1beta1.ConditionReady, yes)
	l.awaitCondition("on-a", v1beta1.ConditionShardReachable, yes)

	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	l.shards.Shard("b").Notice(string(l.get("on-b").Spec.InstanceID), until)
	l.awaitCondition("on-b", v1beta1.ConditionTerminating, yes)
	l.wantCondition(l.get("on-b"), "Terminating", yes, "TerminationNotice", until.Format(time.RFC3339))

	l.shards.Shard("b").Kill(string(l.get("later-b").Spec.InstanceID))
	planetest.Eventually(t, planetest.Patience, "the Machine of the gone instance is deleted", func(context.Context) error {
		if m := l.machine("later-b"); m.DeletionTimestamp.IsZero() {
			return fmt.Errorf("annotations %v", m.Annotations)
		}
		return nil
	})

	planetest.Eventually(t, planetest.Patience, "the template shows its capacity", func(ctx context.Context) error {
		err := l.api.Get(ctx, client.ObjectKeyFromObject(template), template)
		if err == nil && template.Status.Capacity.Cpu().IsZero() {
			err = fmt.Errorf("status %+v", template.Status)
		}
		return err
	})
}

// awaitCondition waits for the status of an object's condition.
func (l *live) awaitCondition(name, kind string, status any) {
	l.Helper()
	planetest.Eventually(l, planetest.Patience, fmt.Sprintf("%s of %s is %v", kind, name, status), func(context.Context) error {
		c := meta.FindStatusCondition(l.get(name).Status.Conditions, kind)
		if c == nil || c.Status != status {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// The response to CreateInstance is lost twice: the call is repeated unchanged, and there is
// one instance.
func TestLostResponseCreatesNoSecondInstance(t *testing.T) {
	l := newLive(t, "a")
	l.shards.Shard("a").Lose("CreateInstance", errCrash, 2)
	l.createMachine("m", nil)
	l.eventually("it is ready", allReady(1))
	calls := l.shards.Shard("a").Calls("CreateInstance")
	if len(calls) < 2 || l.instanceCount("a") != 1 {
		t.Fatalf("%d instances after %d calls", l.instanceCount("a"), len(calls))
	}
	for _, c := range calls {
		if !proto.Equal(c, calls[0]) {
			t.Errorf("calls differ: %v and %v", c, calls[0])
		}
	}
}

// A deleted object that has only an idempotency key, and no instance ID, waits until the
// instance is gone.
func TestDeletionByKeyWaitsForInstance(t *testing.T) {
	l := newLive(t, "a")
	l.shards.Shard("a").Lose("CreateInstance", status.Error(codes.InvalidArgument, "lost"), -1)
	m := l.createMachine("m", nil)
	l.awaitCondition("m", v1beta1.ConditionReady, no)
	shardstest.Eventually(t, "the instance exists", func() bool { return l.instanceCount("a") == 1 })
	l.delete(m)
	shardstest.Eventually(t, "it drains", func() bool { return l.shards.Shard("a").Instances("web")[0].GetPhase() == draining })
	l.awaitCondition("m", v1beta1.ConditionTerminating, yes)
	l.acknowledgeDrains("a")
	l.eventually("the object is gone", func(all []v1beta1.NstanceMachine) error {
		if len(all) > 0 {
			return fmt.Errorf("status %+v", all[0].Status)
		}
		return nil
	})
}

// When the Machine of a pool's instance is deleted, the shard creates the replacement first.
func TestPoolMachineIsReplacedBeforeDeletion(t *testing.T) {
	l := newLive(t, "a")
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
	m := l.createMachine("m", func(m *clusterv1.Machine, nm *v1beta1.NstanceMachine) {
		m.Labels[clusterv1.MachinePoolNameLabel], nm.Labels[clusterv1.MachinePoolNameLabel] = "web", "web"
		nm.Spec.Shard, nm.Spec.InstanceID = "a", v1beta1.InstanceID(id)
	})
	l.eventually("it is adopted", allReady(1))
	l.delete(m)
	shardstest.Eventually(t, "the replacement runs, and the first instance drains", func() bool {
		return shard.Instance(id).GetPhase() == draining && shard.Group("web").GetActualSize() == 1
	})
	if now := l.get("m"); now == nil || !controllerutil.ContainsFinalizer(now, v1beta1.Finalizer) {
		t.Fatalf("it does not wait for its instance: %v", now)
	}
	l.acknowledgeDrains("a")
	l.eventually("the object is gone", func(all []v1beta1.NstanceMachine) error {
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
