package drain_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const csiDriver = "disk.example.com"

// addVolume creates a bound PersistentVolume of a CSI driver, with a claim of the same name.
func (f *fixture) addVolume(claim string) *corev1.PersistentVolume {
	f.t.Helper()
	room := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: f.ns + "-" + claim}}
	pv.Spec = corev1.PersistentVolumeSpec{
		Capacity: room, AccessModes: modes,
		ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: f.ns, Name: claim},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: pv.Name},
		},
	}
	f.create(pv)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: claim}}
	pvc.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, VolumeName: pv.Name, StorageClassName: new(""), Resources: corev1.VolumeResourceRequirements{Requests: room},
	}
	f.create(pvc)
	return pv
}

// attach creates the VolumeAttachment of a volume to the node, as the attach-detach controller
// and the driver do.
func (f *fixture) attach(pv *corev1.PersistentVolume) *storagev1.VolumeAttachment {
	f.t.Helper()
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + pv.Name}}
	a.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: csiDriver, NodeName: f.node.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
	}
	f.create(a)
	a.Status.Attached = true
	f.must(f.plane.Client.Status().Update(f.t.Context(), a))
	return a
}

func using(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}}
	}
}

// A drain is acknowledged once the volumes of its pods are detached, so that they can be
// attached elsewhere at once. Those of pods that stay are not waited for, and nor are those of
// other nodes.
func TestVolumesAreDetachedFirst(t *testing.T) {
	for name, ways := range map[string]struct {
		attach, detach func(*fixture, *corev1.PersistentVolume)
	}{
		"VolumeAttachment": {
			func(f *fixture, pv *corev1.PersistentVolume) { f.attach(pv) },
			func(f *fixture, pv *corev1.PersistentVolume) {
				a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + pv.Name}}
				f.must(f.plane.Client.Delete(f.t.Context(), a))
			},
		},
		"the node's status": {
			func(f *fixture, pv *corev1.PersistentVolume) {
				f.setStatus(func(s *corev1.NodeStatus) {
					s.VolumesAttached = append(s.VolumesAttached,
						corev1.AttachedVolume{Name: corev1.UniqueVolumeName("kubernetes.io/csi/" + csiDriver + "^" + pv.Spec.CSI.VolumeHandle)})
				})
			},
			func(f *fixture, _ *corev1.PersistentVolume) {
				f.setStatus(func(s *corev1.NodeStatus) { s.VolumesAttached = s.VolumesAttached[:1] })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			f.addNode()
			set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "agents"}}
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agents"}}
			set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
			set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
			f.create(set)
			kept, moved := f.addVolume("kept"), f.addVolume("moved")
			f.addPod("agent", using("kept"), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
			})
			p := f.addPod("db", using("moved"))
			ways.attach(f, kept)
			ways.attach(f, moved)

			f.drain(long)
			f.eventually("the pod is evicted", func() bool { return f.evicted(p) })
			f.removePod(p)
			first, node := f.id, f.node
			f.drainAnother() // longer than a reconcile of the first node takes
			f.id, f.node = first, node
			if f.acknowledged() {
				t.Fatal("acknowledged while a volume is attached")
			}
			ways.detach(f, moved)
			f.eventually("the drain is acknowledged", f.acknowledged)
		})
	}
}

// What is attached to an unreachable node can't be detached, and a Machine's annotation says
// not to wait.
func TestVolumesThatAreNotWaitedFor(t *testing.T) {
	for name, prepare := range map[string]func(*fixture){
		"unreachable": func(f *fixture) {
			f.addMachine(nil)
			f.setStatus(func(s *corev1.NodeStatus) {
				s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			})
		},
		"annotated": func(f *fixture) {
			f.addMachine(map[string]string{clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation: ""})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			f.addNode()
			prepare(f)
			f.attach(f.addVolume("data"))
			f.drain(long)
			f.eventually("the drain is acknowledged", f.acknowledged)
		})
	}
}

// The drain's end also ends the wait for volumes, and the event names them.
func TestVolumeIsNeverDetached(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	f.addMachine(nil)
	pv := f.addVolume("data")
	f.attach(pv)
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	f.drain(soon)
	f.awaitEvents("DrainTimedOut", []string{pv.Name, "attached"}, "Machine", "NstanceMachine", "Node")
	if f.acknowledged() {
		t.Error("acknowledged while a volume is attached")
	}
}

// A node is taken from load balancers before its pods go.
func TestNodeLeavesLoadBalancers(t *testing.T) {
	f := newFixture(t, nil)
	f.addNode()
	p := f.addPod("p")
	f.addBudget("p", 0)
	f.drain(long)
	f.eventually("the node is cordoned", f.cordoned)
	var n corev1.Node
	f.must(f.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(f.node), &n))
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; !excluded || f.evicted(p) {
		t.Errorf("labels %v, or the pod is evicted", n.Labels)
	}
}
