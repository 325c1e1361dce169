package drain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// leftover is a pod that is still on a node, and why.
type leftover struct{ pod, why string }

// Why pods are still there.
const (
	whyGoing     = "it is terminating"
	whyCompletes = "it is waited for until it has completed"
	whyLater     = "other pods go before it"
	whyAsked     = "its eviction has just been asked for"
)

// sorted is what is to be done with the pods of a node.
type sorted struct {
	evict []corev1.Pod
	stay  []leftover // what has to go too, and why it is not to be evicted now
}

// sortPods says which of a node's pods are to be evicted now. Of those that have to go
// only the ones of the lowest order are, as long as there are any.
func sortPods(pods []corev1.Pod, namespaces map[string]labels.Set, rules []podRule) sorted {
	type treated struct {
		pod *corev1.Pod
		treatment
	}
	var all []treated
	for i := range pods {
		t := treated{&pods[i], treat(&pods[i], namespaces[pods[i].Namespace], rules)}
		ended := t.behavior == clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted && completed(t.pod)
		if t.behavior != clusterv1.MachineDrainRuleDrainBehaviorSkip && !ended {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return sorted{}
	}
	slices.SortFunc(all, func(a, b treated) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(name(a.pod), name(b.pod)))
	})
	var s sorted
	for _, t := range all {
		switch {
		case t.pod.DeletionTimestamp != nil:
			s.stay = append(s.stay, leftover{name(t.pod), whyGoing})
		case t.behavior == clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted:
			s.stay = append(s.stay, leftover{name(t.pod), whyCompletes})
		case t.order > all[0].order:
			s.stay = append(s.stay, leftover{name(t.pod), whyLater})
		default:
			s.evict = append(s.evict, *t.pod)
		}
	}
	return s
}

func completed(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func name(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
