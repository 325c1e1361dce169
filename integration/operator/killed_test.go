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
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// TestPodsAndAnOperatorThatIsKilled: each pod that asks gets one instance of its own, of
// which all goes with the pod; also when the operator is killed at any moment.
func TestPodsAndAnOperatorThatIsKilled(t *testing.T) {
	w := begin(t, nil)
	w.operate()
	w.running("web", 4)

	first := w.pod("first", nil)
	w.onDemand(1)
	w.eventually("the pod runs", func(ctx context.Context) error {
		if err := w.api.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
			return err
		}
		if first.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", first.Status.Phase)
		}
		return nil
	})
	const pods = 6
	for n := range pods - 1 {
		w.pod(fmt.Sprintf("pod-%d", n), nil)
		time.Sleep(time.Duration(n) * 15 * time.Millisecond) // another moment each time
		w.again()
	}
	w.onDemand(pods)
	if made := w.count(func(i instance) bool { return i.OnDemand }); made != pods {
		t.Errorf("%d instances were made for %d pods", made, pods)
	}

	for n := range pods - 1 {
		w.deletePod(fmt.Sprintf("pod-%d", n))
		time.Sleep(time.Duration(n) * 15 * time.Millisecond)
		w.again()
	}
	w.deletePod("first")
	w.onDemand(0)
	w.settled("web", 4)
	if made := w.count(func(i instance) bool { return !i.OnDemand }); made != 4 {
		t.Errorf("%d instances of the group were made, want the 4 that there were", made)
	}
}

// TestOperatorsOfTwo: with leader election the second one goes on when the first is
// killed; without it, by mistake, nothing is doubled.
func TestOperatorsOfTwo(t *testing.T) {
	w := begin(t, nil)
	w.write("operator.yaml", []byte(operatorConfig))
	for _, c := range []struct {
		name  string
		flags []string
		from  int
	}{{"elected", []string{"--leader-elect"}, 4}, {"not elected", nil, 8}} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			one := w.start("one", c.flags...)
			defer one.kill(syscall.SIGTERM)
			w.running("web", c.from)
			two := w.start("two", c.flags...)
			defer two.kill(syscall.SIGTERM)
			w.scale("web", c.from+2)
			w.running("web", c.from+2)
			one.kill(syscall.SIGKILL)
			w.scale("web", c.from+4)
			w.running("web", c.from+4)
			w.settled("web", c.from+4)
		})
	}
	if made := w.count(func(instance) bool { return true }); made != 12 {
		t.Errorf("%d instances were made, want 12: %+v", made, w.all(""))
	}
}

// TestNothingIsWrittenWhenNothingChanges: also while something else applies the same
// objects again and again.
func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	w := begin(t, nil)
	w.operate()
	w.running("web", 4)
	w.settled("web", 4)
	apply := func(ctx context.Context) {
		for _, text := range []string{
			`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachinePool","spec":{"replicas":4}}`,
			`{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"NstanceMachinePool","spec":{"group":"web","shards":["dev-1","dev-2"]}}`,
		} {
			w.applyAs(ctx, "gitops", "web", text)
		}
	}
	apply(t.Context())
	before := w.quiet()
	applied := time.Now()
	planetest.Consistently(t, 40*time.Second, "nothing is written without need", func(ctx context.Context) error {
		if time.Since(applied) > 5*time.Second {
			apply(ctx)
			applied = time.Now()
		}
		if now := w.versions(ctx); now != before {
			return fmt.Errorf("%s, it was %s", now, before)
		}
		return nil
	})
}

// quiet waits until nothing was written for a while, and returns the objects' versions.
func (w *world) quiet() (versions string) {
	w.Helper()
	var since time.Time
	w.eventually("all is quiet", func(ctx context.Context) error {
		was := versions
		if versions = w.versions(ctx); versions != was {
			since = time.Now()
			return fmt.Errorf("it changes: %s", versions)
		}
		if still := time.Since(since); still < 3*time.Second {
			return fmt.Errorf("it is so only for %v", still)
		}
		return nil
	})
	return versions
}

// pod makes a pod that asks for an instance of its own.
func (w *world) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name = w.namespace, name
	p.Annotations = map[string]string{v1beta1.AnnotationOnDemandGroup: "web"}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	p.Spec.NodeSelector = map[string]string{v1beta1.LabelGroup: "web"}
	if change != nil {
		change(p)
	}
	if err := w.api.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) deletePod(name string) {
	w.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name = w.namespace, name
	err := w.api.Delete(w.Context(), p, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil { // it may have gone with another pod's node
		w.Fatal(err)
	}
}

// count is how many instances there are or were for which ok holds.
func (w *world) count(ok func(instance) bool) (n int) {
	w.Helper()
	for _, i := range w.all("") {
		if ok(i) {
			n++
		}
	}
	return n
}

// onDemand waits until so many Machines of pods run, each with an instance.
func (w *world) onDemand(count int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d Machines of pods run", count), func(ctx context.Context) error {
		var list clusterv1.MachineList
		if err := w.api.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
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
		live := w.count(func(i instance) bool { return i.OnDemand && i.Phase == "running" })
		if running != count || others > 0 || live != count {
			return fmt.Errorf("%d run, %d do not, %d instances", running, others, live)
		}
		return nil
	})
}
