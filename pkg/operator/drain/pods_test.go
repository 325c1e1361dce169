package drain

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	drainIt = clusterv1.MachineDrainRuleDrainBehaviorDrain
	skipIt  = clusterv1.MachineDrainRuleDrainBehaviorSkip
	waitFor = clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted
)

func pod(name string, set map[string]string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, Labels: set}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }
func done(p *corev1.Pod)        { p.Status.Phase = corev1.PodSucceeded }

func by(set map[string]string) *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: set} }

// rule returns a rule for pods with a label app, in namespaces with a label tier.
func rule(name string, b clusterv1.MachineDrainRuleDrainBehavior, order int32, app, tier string) clusterv1.MachineDrainRule {
	r := clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.Drain = clusterv1.MachineDrainRuleDrainConfig{Behavior: b}
	if b == drainIt {
		r.Spec.Drain.Order = &order
	}
	s := clusterv1.MachineDrainRulePodSelector{}
	if app != "" {
		s.Selector = by(map[string]string{"app": app})
	}
	if tier != "" {
		s.NamespaceSelector = by(map[string]string{"tier": tier})
	}
	if app+tier != "" {
		r.Spec.Pods = append(r.Spec.Pods, s)
	}
	return r
}

func TestSortPods(t *testing.T) {
	label := func(v string) map[string]string { return map[string]string{clusterv1.PodDrainLabel: v} }
	app := func(v string) map[string]string { return map[string]string{"app": v} }
	for name, c := range map[string]struct {
		rules []clusterv1.MachineDrainRule
		pods  []corev1.Pod
		evict []string
		stay  []string // pod: why
	}{
		"no pods":              {nil, nil, nil, nil},
		"plain":                {nil, []corev1.Pod{pod("b", nil), pod("a", nil)}, []string{"x/a", "x/b"}, nil},
		"terminating":          {nil, []corev1.Pod{pod("a", nil, terminating), pod("b", nil)}, []string{"x/b"}, []string{"x/a: " + whyGoing}},
		"label skip":           {nil, []corev1.Pod{pod("a", label("skip")), pod("b", label("Skip"), terminating)}, nil, nil},
		"wait-completed":       {nil, []corev1.Pod{pod("a", label("wait-completed"))}, nil, []string{"x/a: " + whyCompletes}},
		"wait-completed, done": {nil, []corev1.Pod{pod("a", label("wait-completed"), done)}, nil, nil},
		"label unknown":        {nil, []corev1.Pod{pod("a", label("perhaps"))}, []string{"x/a"}, nil},
		"rule with Skip": {
			[]clusterv1.MachineDrainRule{rule("r", skipIt, 0, "db", "")},
			[]corev1.Pod{pod("a", app("db")), pod("b", app("web"))}, []string{"x/b"}, nil,
		},
		"rule with WaitCompleted for all pods": {
			[]clusterv1.MachineDrainRule{rule("r", waitFor, 0, "", "")},
			[]corev1.Pod{pod("a", nil)}, nil, []string{"x/a: " + whyCompletes},
		},
		"rule by namespace": {
			[]clusterv1.MachineDrainRule{rule("r", skipIt, 0, "", "base"), rule("s", skipIt, 0, "", "other")},
			[]corev1.Pod{pod("a", nil)}, nil, nil,
		},
		"rule needs pod and namespace to match": {
			[]clusterv1.MachineDrainRule{rule("r", skipIt, 0, "db", "other")},
			[]corev1.Pod{pod("a", app("db"))}, []string{"x/a"}, nil,
		},
		"first rule by name": {
			[]clusterv1.MachineDrainRule{rule("b", waitFor, 0, "", ""), rule("a", skipIt, 0, "db", "")},
			[]corev1.Pod{pod("a", app("db"))}, nil, nil,
		},
		"label before rule": {
			[]clusterv1.MachineDrainRule{rule("r", drainIt, 5, "", "")},
			[]corev1.Pod{pod("a", label("skip"))}, nil, nil,
		},
		"order": {
			[]clusterv1.MachineDrainRule{rule("r", drainIt, 5, "db", ""), rule("s", drainIt, -5, "web", "")},
			[]corev1.Pod{pod("a", app("db")), pod("b", app("web")), pod("c", nil)},
			[]string{"x/b"}, []string{"x/c: " + whyLater, "x/a: " + whyLater},
		},
		"order waits for terminating pods": {
			[]clusterv1.MachineDrainRule{rule("r", drainIt, 5, "db", "")},
			[]corev1.Pod{pod("a", app("db")), pod("c", nil, terminating)},
			nil, []string{"x/c: " + whyGoing, "x/a: " + whyLater},
		},
		"order continues": {
			[]clusterv1.MachineDrainRule{rule("r", drainIt, 5, "db", "")},
			[]corev1.Pod{pod("a", app("db"))}, []string{"x/a"}, nil,
		},
	} {
		rules, err := rulesFor(c.rules, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := sortPods(c.pods, map[string]labels.Set{"x": {"tier": "base"}}, rules)
		var evict, stay []string
		for i := range got.evict {
			evict = append(evict, got.evict[i].Namespace+"/"+got.evict[i].Name)
		}
		for _, l := range got.stay {
			stay = append(stay, l.pod+": "+l.why)
		}
		if !slices.Equal(evict, c.evict) || !slices.Equal(stay, c.stay) {
			t.Errorf("%s: evict %q, stay %q; want %q and %q", name, evict, stay, c.evict, c.stay)
		}
	}
}

func TestRulesForMachines(t *testing.T) {
	green := clusterv1.MachineDrainRuleMachineSelector{
		Selector: by(map[string]string{"color": "green"}), ClusterSelector: by(map[string]string{"env": "prod"}),
	}
	blue := clusterv1.MachineDrainRuleMachineSelector{Selector: by(map[string]string{"color": "blue"})}
	r := rule("r", skipIt, 0, "", "")
	r.Spec.Machines = []clusterv1.MachineDrainRuleMachineSelector{green, blue}
	for _, c := range []struct {
		machine, cluster labels.Set
		want             int
	}{
		{nil, nil, 0},
		{labels.Set{"color": "green"}, nil, 0},
		{labels.Set{"color": "green"}, labels.Set{"env": "prod"}, 1},
		{labels.Set{"color": "blue"}, nil, 1},
		{labels.Set{"color": "red"}, labels.Set{"env": "prod"}, 0},
	} {
		rules, err := rulesFor([]clusterv1.MachineDrainRule{r}, c.machine, c.cluster)
		if err != nil || len(rules) != c.want {
			t.Errorf("machine %v, cluster %v: %d rules, %v; want %d", c.machine, c.cluster, len(rules), err, c.want)
		}
	}
	r.Spec.Machines[0].Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "color", Operator: "Resembles"}}
	if _, err := rulesFor([]clusterv1.MachineDrainRule{r}, nil, nil); err == nil {
		t.Error("a rule with an invalid selector was accepted")
	}
}

func TestLateNoteIsShort(t *testing.T) {
	d := &drain{}
	for n := range 100 {
		d.left = append(d.left, leftover{
			pod: fmt.Sprintf("x/p%d", n), why: "The disruption budget web needs 1 healthy pods and has 1 currently",
		})
	}
	note := short(lateNote(d, nil))
	if len(note) > 1024 {
		t.Errorf("the note has %d characters, the limit of an event is 1024", len(note))
	}
}
