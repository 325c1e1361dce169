package ondemand_test

import (
	"fmt"
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

func TestAPodGetsAMachine(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("job", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandInstanceType] = "large" })
	machines, infrastructures := w.must("job")
	if len(machines) != 1 || len(infrastructures) != 1 {
		t.Fatalf("made %v and %v", machines, infrastructures)
	}
	m, i := machines[0], infrastructures[0]
	if i.Spec.Group != "web" || i.Spec.InstanceType != "large" || i.Spec.Shard != "" || i.Spec.IdempotencyKey != "" {
		t.Errorf("spec %+v", i.Spec)
	}
	if m.Spec.ClusterName != clusterName || m.Spec.Bootstrap.DataSecretName == nil || *m.Spec.Bootstrap.DataSecretName != "" ||
		m.Spec.InfrastructureRef.Name != i.Name || m.Spec.InfrastructureRef.Kind != "NstanceMachine" ||
		m.Spec.InfrastructureRef.APIGroup != v1beta1.Group {
		t.Errorf("spec %+v", m.Spec)
	}
	for _, o := range []client.Object{&m, &i} {
		if o.GetLabels()[clusterv1.ClusterNameLabel] != clusterName || o.GetLabels()[v1beta1.LabelGroup] != "web" ||
			o.GetLabels()[ondemand.LabelPodUID] != string(pod.UID) || o.GetAnnotations()[ondemand.AnnotationPod] != w.pods+"/job" {
			t.Errorf("%T: labels %v, annotations %v", o, o.GetLabels(), o.GetAnnotations())
		}
	}
	if n := w.note(); !strings.Contains(n, m.Name) {
		t.Errorf("event %q", n)
	}
	w.writes = 0
	w.must("job")
	if w.writes > 0 || w.note() != "" {
		t.Errorf("%d writes without a change", w.writes)
	}
}

// Whatever write fails, and whether or not it had its effect, a pod has one Machine in
// the end, and none when it is gone.
func TestACrashAtAnyStepLeavesOneMachine(t *testing.T) {
	for late := range 2 {
		for at := range 2 {
			t.Run(fmt.Sprintf("step %d, after it: %d", at, late), func(t *testing.T) {
				w := newWorld(t)
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
				pod := w.pod("job", nil)
				w.restart(crash)
				if err := w.pass("job"); err == nil {
					t.Fatal("nothing broke off")
				}
				w.restart(nil)
				w.must("job")
				w.count("after a crash", 1)

				w.gone(pod)
				steps = 0
				w.restart(crash)
				for range 3 {
					_ = w.pass("job")
				}
				w.restart(nil)
				for range 2 {
					w.must("job")
				}
				w.count("after the pod", 0)
			})
		}
		// And gone before anybody could go on.
		t.Run(fmt.Sprintf("gone meanwhile %d", late), func(t *testing.T) {
			w := newWorld(t)
			pod := w.pod("job", nil)
			steps := 0
			w.restart(func() (error, error) {
				if steps++; steps == 2-late {
					return errCrash, nil
				}
				return nil, nil
			})
			_ = w.pass("job")
			w.restart(nil)
			w.gone(pod)
			w.must("job")
			w.count("after the pod", 0)
		})
	}
}

func TestWhoGetsNone(t *testing.T) {
	w := newWorld(t)
	ended := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase = phase }
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod)
		note   string
	}{
		{"not-asking", func(p *corev1.Pod) { p.Annotations = nil }, ""},
		{"of-a-daemonset", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "u"}}
		}, ""},
		{"of-a-kubelet", func(p *corev1.Pod) {
			p.Annotations[corev1.MirrorPodAnnotationKey], p.Spec.NodeName = "x", "n"
		}, ""},
		{"no-group", func(p *corev1.Pod) { p.Annotations[v1beta1.AnnotationOnDemandGroup] = "No Group" }, "want the name of a group"},
		{"long-type", func(p *corev1.Pod) {
			p.Annotations[v1beta1.AnnotationOnDemandInstanceType] = strings.Repeat("x", 65)
		}, "want an instance type"},
		{"succeeded", ended(corev1.PodSucceeded), ""},
		{"failed", ended(corev1.PodFailed), ""},
		{"on-a-node-that-is-gone", func(p *corev1.Pod) { p.Spec.NodeName = "gone" }, ""},
		{"terminating", func(p *corev1.Pod) { p.Finalizers = []string{"nstance.dev/test"} }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := w.pod(c.name, c.change)
			if c.change != nil {
				c.change(pod)
				if err := w.api.Status().Update(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			}
			if c.name == "terminating" {
				w.gone(pod)
			}
			for range 2 {
				w.must(c.name)
			}
			w.count(c.name, 0)
			if n := w.note(); !strings.Contains(n, c.note) || (n == "") != (c.note == "") {
				t.Errorf("event %q, want one with %q", n, c.note)
			}
			if n := w.note(); n != "" {
				t.Errorf("one more event: %q", n)
			}
		})
	}
}

// A pod that terminates still runs, and one whose annotation was taken away still needs
// its node.
func TestAMachineStaysAsLongAsItsPod(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("job", func(p *corev1.Pod) { p.Finalizers = []string{"nstance.dev/test"} })
	w.must("job")
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Annotations = nil
	if err := w.api.Patch(t.Context(), pod, patch); err != nil {
		t.Fatal(err)
	}
	w.must("job")
	w.count("without annotation", 1)
	w.gone(pod)
	w.must("job")
	w.count("while it terminates", 1)
	w.hold(pod)
	for range 2 {
		w.must("job")
	}
	w.count("when it is gone", 0)
}

// Another pod of the same name gets a Machine of its own, and the first one's goes.
func TestAnotherPodOfTheSameNameGetsAnother(t *testing.T) {
	w := newWorld(t)
	w.gone(func() *corev1.Pod { p := w.pod("db-0", nil); w.must("db-0"); return p }())
	first, _ := w.made()
	w.pod("db-0", nil)
	for range 2 {
		w.must("db-0")
	}
	w.count("after both", 1)
	if second, _ := w.made(); second[0].Name == first[0].Name {
		t.Errorf("both are %s", second[0].Name)
	}
}

// While one of the two objects goes, the other is not made anew; then both are.
func TestAMachineThatWasLostIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.pod("job", nil)
	machines, infrastructures := w.must("job")
	m, i := &machines[0], &infrastructures[0]
	w.hold(m, clusterv1.MachineFinalizer)
	w.gone(m)
	w.gone(i)
	w.must("job")
	if _, now := w.made(); len(now) > 0 {
		t.Fatalf("made %v for a Machine that goes", now)
	}
	w.hold(m)
	w.must("job")
	w.count("anew", 1)

	// One without the other, before and after it had an instance.
	_, infrastructures = w.made()
	w.gone(&infrastructures[0])
	w.must("job")
	w.count("with its infrastructure again", 1)
	machines, infrastructures = w.made()
	machines[0].Spec.ProviderID = "docker:///x"
	if err := w.api.Update(t.Context(), &machines[0]); err != nil {
		t.Fatal(err)
	}
	w.gone(&infrastructures[0])
	w.must("job")
	if now, _ := w.made(); len(now) > 0 {
		t.Fatalf("left: %v, whose instance nobody knows", now)
	}
	w.must("job")
	w.count("anew again", 1)
}

func TestNothingIsMadeForAClusterThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	var c clusterv1.Cluster
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: clusterName}, &c); err != nil {
		t.Fatal(err)
	}
	c.Spec.Paused = new(true)
	if err := w.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	pod := w.pod("job", nil)
	w.must("job")
	w.count("paused", 0)
	c.Spec.Paused = new(false)
	if err := w.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	w.must("job")
	w.count("not paused", 1)
	c.Spec.Paused = new(true)
	if err := w.api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	w.gone(pod)
	w.must("job")
	w.count("paused again", 1)

	w.hold(&c, clusterv1.ClusterFinalizer)
	w.gone(&c)
	w.hold(&c)
	w.pod("late", nil)
	w.must("late")
	w.count("without a Cluster", 1)
}

func TestNamesAreValid(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("long.name-", 25) + "x"
	for n, name := range []string{"a", "a.b.c", long[:63], long[:250] + "y", strings.Repeat("a", 47) + "-b", strings.Repeat("a", 46) + ".b"} {
		w.pod(name, nil)
		machines, _ := w.must(name)
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
