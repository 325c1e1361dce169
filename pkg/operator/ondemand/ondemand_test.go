package ondemand_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/ondemand"
)

func TestPodGetsMachine(t *testing.T) {
	f := newFixture(t)
	policy := anywhere(10)
	policy.InstanceTypes = []string{"large"}
	f.shards.Shard("a").AllowPods("web", policy)
	f.shards.Synced()
	pod := f.pod("job", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandInstanceType] = "large" })
	machines, infrastructures := f.mustReconcile("job")
	if len(machines) != 1 || len(infrastructures) != 1 {
		t.Fatalf("created %v and %v", machines, infrastructures)
	}
	m, i := machines[0], infrastructures[0]
	if i.Spec.Group != "web" || i.Spec.InstanceType != "large" || i.Spec.Shard != "a" || i.Spec.PodNamespace != f.pods ||
		!strings.HasPrefix(i.Spec.IdempotencyKey, "nsm-") || !slices.Contains(i.Finalizers, v1beta1.Finalizer) {
		t.Errorf("spec %+v", i.Spec)
	}
	if m.Spec.ClusterName != clusterName || m.Spec.Bootstrap.DataSecretName == nil || *m.Spec.Bootstrap.DataSecretName != "" ||
		m.Spec.InfrastructureRef.Name != i.Name || m.Spec.InfrastructureRef.Kind != "NstanceMachine" ||
		m.Spec.InfrastructureRef.APIGroup != v1beta1.Group {
		t.Errorf("spec %+v", m.Spec)
	}
	for _, o := range []client.Object{&m, &i} {
		if o.GetLabels()[clusterv1.ClusterNameLabel] != clusterName || o.GetLabels()[v1beta1.LabelGroup] != "web" ||
			o.GetLabels()[ondemand.LabelPodUID] != string(pod.UID) || o.GetAnnotations()[ondemand.AnnotationPod] != f.pods+"/job" {
			t.Errorf("%T: labels %v, annotations %v", o, o.GetLabels(), o.GetAnnotations())
		}
	}
	if n := f.event(); !strings.Contains(n, m.Name) {
		t.Errorf("event %q", n)
	}
	f.writes = 0
	f.mustReconcile("job")
	if f.writes > 0 || f.event() != "" {
		t.Errorf("%d writes without a change", f.writes)
	}
}

// After a crash at any write, before or after it took effect, a pod has one Machine in the end,
// and none after its deletion.
func TestCrashAtAnyWriteLeavesOneMachine(t *testing.T) {
	for late := range 2 {
		for at := range 2 {
			t.Run(fmt.Sprintf("write %d, after it: %d", at, late), func(t *testing.T) {
				f := newFixture(t)
				steps := 0
				crash := func() (before, after error) {
					if steps++; steps-1 != at {
						return nil, nil
					}
					if late == 1 {
						return nil, errCrash
					}
					return errCrash, nil
				}
				pod := f.pod("job", nil)
				f.restart(crash)
				if err := f.reconcile("job"); err == nil {
					t.Fatal("the reconcile was not interrupted")
				}
				f.restart(nil)
				f.mustReconcile("job")
				f.count("after a crash", 1)

				f.delete(pod)
				steps = 0
				f.restart(crash)
				for range 3 {
					_ = f.reconcile("job")
				}
				f.restart(nil)
				for range 2 {
					f.mustReconcile("job")
				}
				f.count("after the pod's deletion", 0)
			})
		}
		// The pod is deleted before the next write.
		t.Run(fmt.Sprintf("pod deleted meanwhile %d", late), func(t *testing.T) {
			f := newFixture(t)
			pod := f.pod("job", nil)
			steps := 0
			f.restart(func() (error, error) {
				if steps++; steps == 2-late {
					return errCrash, nil
				}
				return nil, nil
			})
			_ = f.reconcile("job")
			f.restart(nil)
			f.delete(pod)
			f.mustReconcile("job")
			f.count("after the pod's deletion", 0)
		})
	}
}

func TestPodsWithoutMachine(t *testing.T) {
	f := newFixture(t)
	inPhase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase = phase }
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod)
		note   string
	}{
		{"no-annotation", func(p *corev1.Pod) { p.Annotations = nil }, ""},
		{"daemonset", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "u"}}
		}, ""},
		{"mirror-pod", func(p *corev1.Pod) {
			p.Annotations[corev1.MirrorPodAnnotationKey], p.Spec.NodeName = "x", "n"
		}, ""},
		{"invalid-group", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandGroup] = "No Group" }, "want the name of a group"},
		{"long-type", func(p *corev1.Pod) {
			p.Annotations[v1beta1.AnnotationOnDemandInstanceType] = strings.Repeat("x", 65)
		}, "want an instance type"},
		{"succeeded", inPhase(corev1.PodSucceeded), ""},
		{"failed", inPhase(corev1.PodFailed), ""},
		{"on-deleted-node", func(p *corev1.Pod) { p.Spec.NodeName = "gone" }, ""},
		{"terminating", func(p *corev1.Pod) { p.Finalizers = []string{"nstance.dev/test"} }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := f.pod(c.name, c.change)
			if c.change != nil {
				c.change(pod)
				if err := f.api.Status().Update(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
			if c.name == "terminating" {
				f.delete(pod)
			}
			for range 2 {
				f.mustReconcile(c.name)
			}
			f.count(c.name, 0)
			if n := f.event(); !strings.Contains(n, c.note) || (n == "") != (c.note == "") {
				t.Errorf("event %q, want one with %q", n, c.note)
			}
			if n := f.event(); n != "" {
				t.Errorf("one more event: %q", n)
			}
		})
	}
}

// A Machine stays until its pod is gone: a terminating pod still runs.
func TestMachineStaysUntilPodIsGone(t *testing.T) {
	f := newFixture(t)
	pod := f.pod("job", func(p *corev1.Pod) { p.Finalizers = []string{"nstance.dev/test"} })
	f.mustReconcile("job")
	f.delete(pod)
	f.mustReconcile("job")
	f.count("terminating", 1)
	f.setFinalizers(pod)
	for range 2 {
		f.mustReconcile("job")
	}
	f.count("gone", 0)
}

// A later pod with the same name gets its own Machine, and the first one's is deleted.
func TestLaterPodWithSameNameGetsOwnMachine(t *testing.T) {
	f := newFixture(t)
	f.delete(func() *corev1.Pod { p := f.pod("db-0", nil); f.mustReconcile("db-0"); return p }())
	first, _ := f.objects()
	f.pod("db-0", nil)
	for range 2 {
		f.mustReconcile("db-0")
	}
	f.count("after both", 1)
	if second, _ := f.objects(); second[0].Name == first[0].Name {
		t.Errorf("both pods have Machine %s", second[0].Name)
	}
}

// While the Machine or the NstanceMachine is being deleted, the other is not recreated; then
// both are.
func TestDeletedMachineIsRecreated(t *testing.T) {
	f := newFixture(t)
	f.pod("job", nil)
	machines, infrastructures := f.mustReconcile("job")
	m, i := &machines[0], &infrastructures[0]
	f.setFinalizers(m, clusterv1.MachineFinalizer)
	f.delete(m)
	f.delete(i)
	f.mustReconcile("job")
	if _, now := f.objects(); len(now) > 0 {
		t.Fatalf("created %v for a Machine that is being deleted", now)
	}
	f.setFinalizers(m)
	f.mustReconcile("job")
	f.count("recreated", 1)

	// The NstanceMachine is deleted alone, before and after the Machine had an instance.
	_, infrastructures = f.objects()
	f.delete(&infrastructures[0])
	f.mustReconcile("job")
	f.count("NstanceMachine recreated", 1)
	machines, infrastructures = f.objects()
	machines[0].Spec.ProviderID = "docker:///x"
	if err := f.api.Update(t.Context(), &machines[0]); err != nil {
		t.Fatal(err)
	}
	f.delete(&infrastructures[0])
	f.mustReconcile("job")
	if now, _ := f.objects(); len(now) > 0 {
		t.Fatalf("a Machine with an unknown instance is kept: %v", now)
	}
	f.mustReconcile("job")
	f.count("both recreated", 1)
}

func TestClusterPausedOrMissing(t *testing.T) {
	f := newFixture(t)
	var c clusterv1.Cluster
	if err := f.api.Get(t.Context(), client.ObjectKey{Namespace: f.ns, Name: clusterName}, &c); err != nil {
		t.Fatal(err)
	}
	c.Spec.Paused = new(true)
	if err := f.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	pod := f.pod("job", nil)
	f.mustReconcile("job")
	f.count("paused", 0)
	c.Spec.Paused = new(false)
	if err := f.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	f.mustReconcile("job")
	f.count("not paused", 1)
	c.Spec.Paused = new(true)
	if err := f.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	f.delete(pod)
	f.mustReconcile("job")
	f.count("paused again", 1)

	f.setFinalizers(&c, clusterv1.ClusterFinalizer)
	f.delete(&c)
	f.setFinalizers(&c)
	f.pod("late", nil)
	f.mustReconcile("late")
	f.count("without a Cluster", 1)
}

func TestNamesAreValid(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("long.name-", 25) + "x"
	for n, name := range []string{"a", "a.b.c", long[:63], long[:250] + "y", strings.Repeat("a", 47) + "-b", strings.Repeat("a", 46) + ".b"} {
		f.pod(name, nil)
		machines, _ := f.mustReconcile(name)
		if len(machines) != n+1 {
			t.Fatalf("%d Machines", len(machines))
		}
		for _, m := range machines {
			if wrong := validation.IsDNS1123Label(m.Name); len(wrong) > 0 || strings.Contains(m.Name, "--") {
				t.Errorf("%s: %v", m.Name, wrong)
			}
		}
	}
}
