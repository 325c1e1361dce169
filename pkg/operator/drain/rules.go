package drain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// podRule is what to do with some pods of a node.
type podRule struct {
	pods     []podSelector // any of which must match; empty: all pods
	behavior clusterv1.MachineDrainRuleDrainBehavior
	order    int32
}

type podSelector struct{ pod, namespace labels.Selector }

// treatment is what to do with a pod: evict it once no pod of a lower order is left, wait
// until it completes, or skip it.
type treatment struct {
	behavior clusterv1.MachineDrainRuleDrainBehavior
	order    int32
}

// rulesFor returns those of Cluster API's drain rules that match a machine's and its cluster's
// labels, in order of precedence.
func rulesFor(all []clusterv1.MachineDrainRule, machine, cluster labels.Set) ([]podRule, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b clusterv1.MachineDrainRule) int { return strings.Compare(a.Name, b.Name) })
	var rules []podRule
	for i := range all {
		fits, err := forMachine(&all[i], machine, cluster)
		if err == nil && fits {
			var rule podRule
			rule, err = newPodRule(&all[i])
			rules = append(rules, rule)
		}
		if err != nil {
			return nil, fmt.Errorf("MachineDrainRule %s: %w", all[i].Name, err)
		}
	}
	return rules, nil
}

func forMachine(r *clusterv1.MachineDrainRule, machine, cluster labels.Set) (bool, error) {
	for _, s := range r.Spec.Machines {
		byMachine, err := selector(s.Selector)
		if err != nil {
			return false, err
		}
		byCluster, err := selector(s.ClusterSelector)
		if err != nil {
			return false, err
		}
		if byMachine.Matches(machine) && byCluster.Matches(cluster) {
			return true, nil
		}
	}
	return len(r.Spec.Machines) == 0, nil
}

func newPodRule(r *clusterv1.MachineDrainRule) (podRule, error) {
	rule := podRule{behavior: r.Spec.Drain.Behavior}
	if r.Spec.Drain.Order != nil {
		rule.order = *r.Spec.Drain.Order
	}
	for _, s := range r.Spec.Pods {
		pod, err := selector(s.Selector)
		if err != nil {
			return podRule{}, err
		}
		namespace, err := selector(s.NamespaceSelector)
		if err != nil {
			return podRule{}, err
		}
		rule.pods = append(rule.pods, podSelector{pod, namespace})
	}
	return rule, nil
}

// selector converts a label selector; nil selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// needNamespaces reports whether a rule uses the labels of the pods' namespaces.
func needNamespaces(rules []podRule) bool {
	return slices.ContainsFunc(rules, func(r podRule) bool {
		return slices.ContainsFunc(r.pods, func(s podSelector) bool { return !s.namespace.Empty() })
	})
}

// treat returns what to do with a pod: its own label takes precedence over the rules, of which
// the first match decides.
func treat(p *corev1.Pod, namespace labels.Set, rules []podRule) treatment {
	switch strings.ToLower(p.Labels[clusterv1.PodDrainLabel]) {
	case "skip":
		return treatment{behavior: clusterv1.MachineDrainRuleDrainBehaviorSkip}
	case "wait-completed", "waitcompleted":
		return treatment{behavior: clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted}
	}
	for _, r := range rules {
		if len(r.pods) > 0 && !slices.ContainsFunc(r.pods, func(s podSelector) bool {
			return s.pod.Matches(labels.Set(p.Labels)) && s.namespace.Matches(namespace)
		}) {
			continue
		}
		if r.behavior == clusterv1.MachineDrainRuleDrainBehaviorDrain {
			return treatment{r.behavior, r.order}
		}
		return treatment{behavior: r.behavior}
	}
	return treatment{behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain}
}
