package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	kubedrain "k8s.io/kubectl/pkg/drain"
)

const (
	// evictionTimeout bounds all evictions of one pass over a node.
	evictionTimeout = 5 * time.Second
	// evictionsAtOnce bounds concurrent evictions.
	evictionsAtOnce = 10
)

// helper returns kubectl's drain helper, which decides which pods a drain covers.
func helper(ctx context.Context, c kubernetes.Interface, n *corev1.Node) *kubedrain.Helper {
	h := &kubedrain.Helper{
		Ctx: ctx, Client: c,
		Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, GracePeriodSeconds: -1,
		Out: io.Discard, ErrOut: io.Discard,
	}
	if unreachable(n) {
		// No kubelet will report that a pod has ended: pods past their grace period count as
		// gone.
		h.SkipWaitForDeleteTimeoutSeconds, h.GracePeriodSeconds = 1, 1
	}
	return h
}

// unreachable reports whether Kubernetes has lost contact with a node's kubelet.
func unreachable(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// podsOf returns the pods that have to leave a node, sorted by what to do with them.
func podsOf(ctx context.Context, h *kubedrain.Helper, n *corev1.Node, rules []podRule) (sorted, error) {
	list, errs := h.GetPodsForDeletion(n.Name)
	if err := errors.Join(errs...); err != nil {
		return sorted{}, fmt.Errorf("list the pods of node %s: %w", n.Name, err)
	}
	pods := list.Pods()
	var namespaces map[string]labels.Set
	if needNamespaces(rules) {
		var err error
		if namespaces, err = namespacesOf(ctx, h.Client, pods); err != nil {
			return sorted{}, err
		}
	}
	return sortPods(pods, namespaces, rules), nil
}

// namespacesOf returns the labels of the pods' namespaces.
func namespacesOf(ctx context.Context, c kubernetes.Interface, pods []corev1.Pod) (map[string]labels.Set, error) {
	found := map[string]labels.Set{}
	for i := range pods {
		ns := pods[i].Namespace
		if _, known := found[ns]; known {
			continue
		}
		o, err := c.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the labels of namespace %s: %w", ns, err)
		}
		found[ns] = o.Labels
	}
	return found, nil
}

// evict requests the eviction of each pod once and returns those that are still there, in
// order.
func evict(h *kubedrain.Helper, pods []corev1.Pod) []leftover {
	ctx, cancel := context.WithTimeout(h.Ctx, evictionTimeout)
	defer cancel()
	bounded := *h
	bounded.Ctx = ctx
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		left  []leftover
		slots = make(chan struct{}, evictionsAtOnce)
	)
	for i := range pods {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := bounded.EvictPod(pods[i], policyv1.SchemeGroupVersion)
			if apierrors.IsNotFound(err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			why, budgets := whyNot(err)
			left = append(left, leftover{pod: name(&pods[i]), why: why, budgets: budgets})
		})
	}
	wg.Wait()
	slices.SortFunc(left, func(a, b leftover) int { return cmp.Compare(a.pod, b.pod) })
	return left
}

// whyNot describes why an eviction failed. A disruption budget that forbids it is named in the
// causes, and returned too.
func whyNot(err error) (why, budgets string) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return whyAsked, ""
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the API server did not answer its eviction within %s", evictionTimeout), ""
	case apierrors.IsTooManyRequests(err) && errors.As(err, &status) && status.Status().Details != nil:
		var causes []string
		for _, c := range status.Status().Details.Causes {
			causes = append(causes, c.Message)
		}
		if len(causes) > 0 {
			return strings.Join(causes, ", "), budgetsOf(status.Status().Details.Causes)
		}
	}
	return err.Error(), ""
}
