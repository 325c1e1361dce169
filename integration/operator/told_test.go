//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestPodsAreToldWhy: a pod that gets no machine is told on itself, in one event that says what is
// wrong. Once that is mended, it gets its machine.
func TestPodsAreToldWhy(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	ask := func(name string, change func(annotations map[string]string)) *corev1.Pod {
		return f.pod(name, func(p *corev1.Pod) { change(p.Annotations) })
	}
	for name, told := range map[string]struct {
		change func(annotations map[string]string)
		parts  []string
	}{
		"no-such-group": {func(a map[string]string) { a[v1beta1.AnnotationOnDemandGroup] = "nothing" }, []string{"no such group", dev1, dev2}},
		"no-such-type":  {func(a map[string]string) { a[v1beta1.AnnotationOnDemandInstanceType] = "huge" }, []string{`"huge"`, "instance_types"}},
		"no-such-shard": {func(a map[string]string) { a[v1beta1.AnnotationOnDemandShard] = "dev-9" }, []string{"dev-9"}},
		"malformed":     {func(a map[string]string) { a[v1beta1.AnnotationOnDemandKeep] = "a while" }, []string{"nstance.dev/keep", "a while"}},
	} {
		p := ask(name, told.change)
		f.event("OnDemandRefused", "Pod", p.Name, told.parts...)
	}
	f.onDemand(0)

	var p corev1.Pod
	if err := f.get(t.Context(), "no-such-group", &p); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"web"}}}`, v1beta1.AnnotationOnDemandGroup))
	if err := f.api.Patch(t.Context(), &p, patch); err != nil {
		t.Fatal(err)
	}
	f.onDemand(1)
	f.runs(&p)
}

// hookHoldsDrain: a pre-drain hook of a pool's Machine holds the drain of its instance,
// although the scale-down began with its shard.
func hookHoldsDrain(f *fixture) {
	victim := f.instances("web", dev1)[0].ID
	pod := f.podOn(victim, "hooked", "hooked")
	const hook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/story"
	annotate := func(value string) {
		m := &clusterv1.Machine{}
		m.Namespace, m.Name = f.namespace, victim
		patch := client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, hook, value))
		if err := f.api.Patch(f.Context(), m, patch); err != nil {
			f.Fatal(err)
		}
	}
	annotate(`"story"`)
	f.condemn(victim)
	f.scale("web", 1)
	f.eventually("its Machine is being deleted", func(ctx context.Context) error {
		var m clusterv1.Machine
		if err := f.get(ctx, victim, &m); err != nil || !m.DeletionTimestamp.IsZero() {
			return err
		}
		return fmt.Errorf("annotations %v", m.Annotations)
	})
	f.event("DrainHeld", "NstanceMachine", victim, hook)
	f.consistently(3*time.Second, "the hook holds the drain", func(ctx context.Context) error { return f.untouched(ctx, pod) })
	annotate("null")
	free := time.Now()
	f.eventually("the pod is evicted", func(ctx context.Context) error {
		if is, err := f.there(ctx, pod.Name, pod); is || err != nil {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	f.Logf("evicted %v after the hook was removed", time.Since(free))
	f.eventually("its Node and its Machine go", func(ctx context.Context) error { return f.gone(ctx, victim) })
	f.Logf("gone %v after the hook was removed", time.Since(free))
	f.running("web", 1)
	f.settled("web", 1)
}
