package ondemand_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func notIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: values}
}

// term is an alternative of a node selector.
func term(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: all}
}

func affinity(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value, "other": "x"} }
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

// claiming has a pod use the volumes of PersistentVolumeClaims.
func claiming(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		}
	}
}

// volume creates a PersistentVolumeClaim that is bound to a volume with these alternatives.
func (w *fakeCluster) volume(namespace, name string, terms ...corev1.NodeSelectorTerm) {
	w.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	w.create(v)
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Spec.VolumeName = v.Name
	w.create(c)
}

// TestShardSuitsPod: the shard of a pod's instance is one whose nodes the pod can use. If none
// is, the event says which constraint excludes which shard. The shards a, b and c are in zones
// of the same names, and a has the fewest machines.
func TestShardSuitsPod(t *testing.T) {
	const zone, shard = corev1.LabelTopologyZone, v1beta1.LabelShard
	for name, c := range map[string]struct {
		pod     func(*corev1.Pod)
		shard   string
		refused []string
	}{
		"nothing":                    {pod: func(*corev1.Pod) {}, shard: "a"},
		"zone selected":              {pod: selecting(zone, "b"), shard: "b"},
		"shard selected":             {pod: selecting(shard, "c"), shard: "c"},
		"shard annotated":            {pod: annotated(v1beta1.AnnotationOnDemandShard, "c"), shard: "c"},
		"affinity":                   {pod: affinity(term(in(zone, "c", "d"))), shard: "c"},
		"affinity with alternatives": {pod: affinity(term(in(zone, "d")), term(in(zone, "b"), in("disk", "ssd"))), shard: "b"},
		"affinity without":           {pod: affinity(term(notIn(zone, "a"), notIn(shard, "b"))), shard: "c"},
		"affinity to a zone that exists": {shard: "a", pod: affinity(term(corev1.NodeSelectorRequirement{
			Key: zone, Operator: corev1.NodeSelectorOpExists,
		}))},
		"alternative with any shard": {pod: affinity(term(in(zone, "b")), term(in("disk", "ssd"))), shard: "a"},
		"volume":                     {pod: claiming("in-b"), shard: "b"},
		"volume without a zone":      {pod: claiming("anywhere"), shard: "a"},
		"volume that is not bound":   {pod: claiming("waits"), shard: "a"},
		"volume that does not exist": {pod: claiming("missing"), shard: "a"},
		"ephemeral volume": {shard: "b", pod: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}},
		"unknown shard": {pod: annotated(v1beta1.AnnotationOnDemandShard, "d"), refused: []string{
			"shard a, b, c: annotation on-demand.nstance.dev/shard is d",
		}},
		"shard with an invalid name": {pod: annotated(v1beta1.AnnotationOnDemandShard, "D!"), refused: []string{
			`annotation on-demand.nstance.dev/shard is "D!": want the name of a shard`,
		}},
		"unknown zone": {pod: selecting(zone, "d"), refused: []string{
			"shard a: spec.nodeSelector wants topology.kubernetes.io/zone In (d); the shard's zone is a", "shard c: spec.nodeSelector wants",
		}},
		"volumes in two zones": {pod: claiming("in-b", "in-c"), refused: []string{
			"shard b: PersistentVolume pv-in-c wants topology.kubernetes.io/zone In (c); the shard's zone is b",
			"shard c: PersistentVolume pv-in-b wants topology.kubernetes.io/zone In (b); the shard's zone is c",
		}},
		"a volume and the group's policy": {pod: func(p *corev1.Pod) { claiming("in-b")(p); largest(p) }, refused: []string{
			"shard a: PersistentVolume pv-in-b wants", `shard b: instance type "p5.48xlarge"`,
		}},
		"a duration that is none": {pod: annotated(v1beta1.AnnotationOnDemandKeep, "1 hour"), refused: []string{
			`annotation on-demand.nstance.dev/keep is "1 hour": want a duration`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t, "a", "b", "c")
			for _, s := range []string{"a", "b", "c"} {
				w.allow(s, anywhere(5))
			}
			w.namespace("ci", nil)
			w.volume("ci", "in-b", term(in(zone, "b")))
			w.volume("ci", "job-scratch", term(in(zone, "b")))
			w.volume("ci", "in-c", term(in(zone, "c"), in("disk", "x")))
			w.volume("ci", "anywhere", term(in("disk", "x")))
			w.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "waits"}})
			w.pod("ci", "job", c.pod)
			o := w.operator("default")
			o.reconcile("ci", "job")
			all, events := w.machines("default"), o.takeEvents()
			switch {
			case c.shard != "" && (len(all) != 1 || string(all[0].Spec.Shard) != c.shard):
				t.Errorf("Machines %+v, events %q; want one on shard %s", all, events, c.shard)
			case c.shard == "" && len(all) > 0:
				t.Errorf("Machines %+v", all)
			}
			for _, want := range c.refused {
				if !strings.Contains(events, want) {
					t.Errorf("events %q, want one with %q", events, want)
				}
			}
		})
	}
}
