package ondemand

import (
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// mirror is on pods that a kubelet runs by itself, and only shows.
const mirror = corev1.MirrorPodAnnotationKey

const (
	longestName = 32
	longestType = 64
)

var name = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ask is what a pod asks for.
type ask struct {
	group        string
	instanceType string
}

// asks reads what a pod asks for; false: nothing. A DaemonSet's pods and those of a
// kubelet belong to a node that there is already.
func asks(pod metav1.Object) (ask, bool) {
	annotations := pod.GetAnnotations()
	group, ok := annotations[v1beta1.AnnotationOnDemandGroup]
	if _, static := annotations[mirror]; static || !ok {
		return ask{}, false
	}
	bound := slices.ContainsFunc(pod.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" || o.Kind == "Node"
	})
	return ask{group: group, instanceType: annotations[v1beta1.AnnotationOnDemandInstanceType]}, !bound
}

// check says what is wrong with it.
func (a ask) check() error {
	if !name.MatchString(a.group) || len(a.group) > longestName {
		return fmt.Errorf("annotation %s is %.80q: want the name of a group, lower-case letters, digits and single hyphens, at most %d",
			v1beta1.AnnotationOnDemandGroup, a.group, longestName)
	}
	if len(a.instanceType) > longestType {
		return fmt.Errorf("annotation %s is %.80q: want an instance type, at most %d characters",
			v1beta1.AnnotationOnDemandInstanceType, a.instanceType, longestType)
	}
	return nil
}

// finished reports whether a pod never needs a node any more: it has ended, or it was on
// a node that is gone, and can't leave it.
func finished(p *corev1.Pod, nodeIsThere bool) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
		p.Spec.NodeName != "" && !nodeIsThere
}
