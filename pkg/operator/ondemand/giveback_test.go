package ondemand_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// What happens to the machine of a pod that does not need it.
func TestMachineIsGivenBack(t *testing.T) {
	annotate := func(f *fixture, p *corev1.Pod, key, value string) {
		patch := client.MergeFrom(p.DeepCopy())
		if p.Annotations[key] = value; value == "" {
			delete(p.Annotations, key)
		}
		if err := f.api.Patch(f.Context(), p, patch); err != nil {
			f.Fatal(err)
		}
		f.late += time.Minute
	}
	guest := func(f *fixture, node string, owners ...metav1.OwnerReference) {
		f.schedule(f.pod("guest", func(p *corev1.Pod) { p.Annotations, p.OwnerReferences = nil, owners }), node)
	}
	for name, c := range map[string]struct {
		then  func(f *fixture, p *corev1.Pod, node string)
		stays bool
		event string
	}{
		"it runs on its machine": {stays: true, then: func(f *fixture, p *corev1.Pod, node string) { f.schedule(p, node) }},
		"it waits":               {stays: true, then: func(*fixture, *corev1.Pod, string) {}},
		"scheduled to another node": {event: "was scheduled to node", then: func(f *fixture, p *corev1.Pod, _ string) {
			f.node(f.ns+"-big", "process:///big")
			f.schedule(p, f.ns+"-big")
		}},
		"scheduled to another node, with a guest on its machine": {stays: true, then: func(f *fixture, p *corev1.Pod, node string) {
			f.node(f.ns+"-big", "process:///big")
			f.schedule(p, f.ns+"-big")
			guest(f, node)
		}},
		"scheduled to another node, with a pod of a DaemonSet": {event: "was scheduled", then: func(f *fixture, p *corev1.Pod, node string) {
			f.node(f.ns+"-big", "process:///big")
			f.schedule(p, f.ns+"-big")
			guest(f, node, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "u"})
		}},
		"annotation removed": {event: "no longer has annotation", then: func(f *fixture, p *corev1.Pod, _ string) {
			annotate(f, p, v1beta1.AnnotationOnDemandGroup, "")
		}},
		"annotation removed while it runs on its machine": {stays: true, then: func(f *fixture, p *corev1.Pod, node string) {
			f.schedule(p, node)
			annotate(f, p, v1beta1.AnnotationOnDemandGroup, "")
		}},
		"it has ended": {event: "has ended", then: func(f *fixture, p *corev1.Pod, node string) {
			f.schedule(p, node)
			f.phase(p, corev1.PodFailed)
		}},
		"it has ended, with a guest on its machine": {event: "has ended", then: func(f *fixture, p *corev1.Pod, node string) {
			f.schedule(p, node)
			guest(f, node)
			f.phase(p, corev1.PodSucceeded)
		}},
		"it has ended, and is kept": {stays: true, then: func(f *fixture, p *corev1.Pod, node string) {
			annotate(f, p, v1beta1.AnnotationOnDemandKeep, "24h")
			f.schedule(p, node)
			f.phase(p, corev1.PodSucceeded)
		}},
		"it has ended, and was kept": {event: "has ended", then: func(f *fixture, p *corev1.Pod, node string) {
			annotate(f, p, v1beta1.AnnotationOnDemandKeep, "24h")
			f.schedule(p, node)
			f.phase(p, corev1.PodSucceeded)
			f.late += 25 * time.Hour
		}},
		"it has ended, and is kept for no duration": {stays: true, event: "want a duration", then: func(f *fixture, p *corev1.Pod, node string) {
			annotate(f, p, v1beta1.AnnotationOnDemandKeep, "an hour")
			f.schedule(p, node)
			f.phase(p, corev1.PodSucceeded)
		}},
		"another group": {event: "no longer has annotation", then: func(f *fixture, p *corev1.Pod, _ string) {
			annotate(f, p, v1beta1.AnnotationOnDemandGroup, "unknown")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			pod := f.pod("job", nil)
			f.settle("job")
			node := f.boot(pod)
			for f.event() != "" {
			}
			c.then(f, pod, node)
			f.settle("job")
			want := map[string]*corev1.Pod{}
			if c.stays {
				want[node] = pod
			}
			f.wantNodes(name, want)
			if e := f.event(); !strings.Contains(e, c.event) || (e == "") != (c.event == "") {
				t.Errorf("event %q, want one with %q", e, c.event)
			}
		})
	}
}

// A pod that is scheduled already gets a machine only if its node is a machine of another pod
// of the group, which may go with that pod.
func TestScheduledPodGetsNoMachine(t *testing.T) {
	f := newFixture(t)
	f.node(f.ns+"-big", "process:///big")
	f.schedule(f.pod("elsewhere", nil), f.ns+"-big")
	f.settle("elsewhere")
	f.count("scheduled elsewhere", 0)
	first := f.pod("first", nil)
	f.settle("first")
	f.schedule(f.pod("beside", nil), f.boot(first))
	f.settle("beside")
	f.count("scheduled to another pod's machine", 2)
}
