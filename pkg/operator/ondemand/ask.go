package ondemand

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// mirror marks static pods, which a kubelet runs by itself.
const mirror = corev1.MirrorPodAnnotationKey

const (
	longestName = 32
	longestType = 64
)

var name = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ask is what a pod requests.
type ask struct {
	group        string
	instanceType string
	shard        string // empty: any
	keep         string // a duration; empty: 0
}

// asks returns a pod's request; false if there is none. Pods of a DaemonSet or of a kubelet
// belong to an existing node.
func asks(pod metav1.Object) (ask, bool) {
	annotations := pod.GetAnnotations()
	group, ok := annotations[v1beta1.AnnotationOnDemandGroup]
	if _, static := annotations[mirror]; static || !ok {
		return ask{}, false
	}
	bound := slices.ContainsFunc(pod.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" || o.Kind == "Node"
	})
	return ask{
		group: group, instanceType: annotations[v1beta1.AnnotationOnDemandInstanceType],
		shard: annotations[v1beta1.AnnotationOnDemandShard], keep: annotations[v1beta1.AnnotationOnDemandKeep],
	}, !bound
}

// check validates the request.
func (a ask) check() error {
	if !name.MatchString(a.group) || len(a.group) > longestName {
		return fmt.Errorf("annotation %s is %.80q: want the name of a group, lower-case letters, digits and single hyphens, at most %d",
			v1beta1.AnnotationOnDemandGroup, a.group, longestName)
	}
	if len(a.instanceType) > longestType {
		return fmt.Errorf("annotation %s is %.80q: want an instance type, at most %d characters",
			v1beta1.AnnotationOnDemandInstanceType, a.instanceType, longestType)
	}
	if a.shard != "" && (!name.MatchString(a.shard) || len(a.shard) > longestName) {
		return fmt.Errorf("annotation %s is %.80q: want the name of a shard, lower-case letters, digits and single hyphens, at most %d",
			v1beta1.AnnotationOnDemandShard, a.shard, longestName)
	}
	_, err := a.keeps()
	return err
}

// keeps returns how long the instance stays after the pod has ended.
func (a ask) keeps() (time.Duration, error) {
	if a.keep == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(a.keep)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("annotation %s is %.80q: want a duration, such as 10m or 1h30m", v1beta1.AnnotationOnDemandKeep, a.keep)
	}
	return d, nil
}

// finished reports whether a pod will never need a node again: it has ended, or its node is
// gone, which it can't leave.
func finished(p *corev1.Pod, nodeIsThere bool) bool {
	return ended(p) || p.Spec.NodeName != "" && !nodeIsThere
}
