//go:build integration

package operator

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestPodsAndAnOperatorThatIsKilled: each pod that requests one gets one instance of its own, which
// is deleted with the pod; also when the operator is killed at any moment.
func TestPodsAndAnOperatorThatIsKilled(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)

	first := f.pod("first", nil)
	f.onDemand(1)
	f.eventually("the pod runs", func(ctx context.Context) error {
		if err := f.api.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		if first.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", first.Status.Phase)
		}
		return nil
	})
	const pods = 6
	for n := range pods - 1 {
		f.pod(fmt.Sprintf("pod-%d", n), nil)
		time.Sleep(time.Duration(n) * 15 * time.Millisecond) // a different moment each time
		f.again()
	}
	f.onDemand(pods)
	if made := f.count(func(i instance) bool { return i.OnDemand }); made != pods {
		t.Errorf("%d instances were made for %d pods", made, pods)
	}

	for n := range pods - 1 {
		f.deletePod(fmt.Sprintf("pod-%d", n))
		time.Sleep(time.Duration(n) * 15 * time.Millisecond)
		f.again()
	}
	f.deletePod("first")
	f.onDemand(0)
	f.settled("web", 4)
	if made := f.count(func(i instance) bool { return !i.OnDemand }); made != 4 {
		t.Errorf("%d instances of the group were made, want the 4 that there were", made)
	}
}

// TestOperatorsOfTwo: with leader election the second one takes over when the first is killed;
// without it, by mistake, nothing is doubled.
func TestOperatorsOfTwo(t *testing.T) {
	f := newFixture(t, nil)
	f.write("operator.yaml", []byte(operatorConfig))
	for _, c := range []struct {
		name  string
		flags []string
		from  int
	}{{"elected", []string{"--leader-elect"}, 4}, {"not elected", nil, 8}} {
		t.Run(c.name, func(t *testing.T) {
			f := f.in(t)
			one := f.start("one", c.flags...)
			defer one.kill(syscall.SIGTERM)
			f.running("web", c.from)
			two := f.start("two", c.flags...)
			defer two.kill(syscall.SIGTERM)
			f.scale("web", c.from+2)
			f.running("web", c.from+2)
			one.kill(syscall.SIGKILL)
			f.scale("web", c.from+4)
			f.running("web", c.from+4)
			f.settled("web", c.from+4)
		})
	}
	if made := f.count(func(instance) bool { return true }); made != 12 {
		t.Errorf("%d instances were made, want 12: %+v", made, f.all(""))
	}
}

// TestNothingIsWrittenWhenNothingChanges, also while something else applies the same objects again
// and again.
func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	f.settled("web", 4)
	apply := func(ctx context.Context) {
		for _, text := range []string{
			`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachinePool","spec":{"replicas":4}}`,
			`{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"NstanceMachinePool","spec":{"group":"web","shards":["dev-1","dev-2"]}}`,
		} {
			f.applyAs(ctx, "gitops", "web", text)
		}
	}
	apply(t.Context())
	before := f.quiet()
	applied := time.Now()
	f.consistently(40*time.Second, "nothing is written without need", func(ctx context.Context) error {
		if time.Since(applied) > 5*time.Second {
			apply(ctx)
			applied = time.Now()
		}
		if now := f.versions(ctx); now != before {
			return fmt.Errorf("%s, it was %s", now, before)
		}
		return nil
	})
}

// quietFor is longer than a pending write may be delayed on a machine under load.
const quietFor = 20 * time.Second

// quiet waits until nothing was written for a while, and returns the objects' versions.
func (f *fixture) quiet() (versions string) {
	f.Helper()
	var since time.Time
	f.eventually("all is quiet", func(ctx context.Context) error {
		was := versions
		if versions = f.versions(ctx); versions != was {
			since = time.Now()
			return fmt.Errorf("it changes: %s", versions)
		}
		if still := time.Since(since); still < quietFor {
			return fmt.Errorf("it is so only for %v", still)
		}
		return nil
	})
	return versions
}

// pod creates a pod that requests an instance of its own.
func (f *fixture) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	f.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name = f.namespace, name
	p.Annotations = map[string]string{v1beta1.AnnotationOnDemandGroup: "web"}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	p.Spec.NodeSelector = map[string]string{v1beta1.LabelGroup: "web"}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1beta1.GateMachine}} // the pool's machines would do, too
	if change != nil {
		change(p)
	}
	if err := f.api.Create(f.Context(), p); err != nil {
		f.Fatal(err)
	}
	return p
}

func (f *fixture) deletePod(name string) {
	f.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name = f.namespace, name
	err := f.api.Delete(f.Context(), p, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil { // it may have been deleted with another pod's node
		f.Fatal(err)
	}
}

// count counts the present and past instances for which ok holds.
func (f *fixture) count(ok func(instance) bool) (n int) {
	f.Helper()
	for _, i := range f.all("") {
		if ok(i) {
			n++
		}
	}
	return n
}

// onDemand waits until this many Machines of pods run, each with an instance.
func (f *fixture) onDemand(count int) {
	f.Helper()
	f.eventually(fmt.Sprintf("%d Machines of pods run", count), func(ctx context.Context) error {
		var list clusterv1.MachineList
		if err := f.api.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		running, others := 0, 0
		for _, m := range list.Items {
			switch {
			case m.Labels[clusterv1.MachinePoolNameLabel] != "":
			case m.Status.Phase == string(clusterv1.MachinePhaseRunning) && m.Status.NodeRef.Name != "":
				running++
			default:
				others++
			}
		}
		live := f.count(func(i instance) bool { return i.OnDemand && i.Phase == "running" })
		if running != count || others > 0 || live != count {
			return fmt.Errorf("%d run, %d do not, %d instances", running, others, live)
		}
		return nil
	})
}
