package drain

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// leftover is a pod or a volume that is still on a node, and why.
type leftover struct {
	pod, why string
	until    time.Time // when a terminating pod's grace period ends
	budgets  string    // the names of the disruption budgets that forbid its eviction
}

// Reasons why pods are still there.
const (
	whyGoing     = "it is terminating"
	whyCompletes = "it is being waited for until it completes"
	whyLater     = "other pods go before it"
	whyAsked     = "its eviction has just been requested"
)

// sorted is what to do with the pods of a node.
type sorted struct {
	evict []corev1.Pod
	stay  []leftover // must go too, and why not now
}

// sortPods selects the pods to evict now: of those that must go, the ones with the lowest
// order.
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
			s.stay = append(s.stay, leftover{pod: name(t.pod), why: whyGoing, until: t.pod.DeletionTimestamp.Time})
		case t.behavior == clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted:
			s.stay = append(s.stay, leftover{pod: name(t.pod), why: whyCompletes})
		case t.order > all[0].order:
			s.stay = append(s.stay, leftover{pod: name(t.pod), why: whyLater})
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
