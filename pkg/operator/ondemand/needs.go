package ondemand

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// needs are a pod's constraints on the shard of its instance.
type needs struct {
	shard string // by annotation; empty: any
	all   []need
}

// need is a constraint on a shard's Nodes. One of its terms must hold, with all requirements.
type need struct {
	from  string // the field or object that it comes from
	terms [][]corev1.NodeSelectorRequirement
}

// facts are the labels that all Nodes of a shard have, as far as they are known.
func (p place) facts() map[string]string {
	known := map[string]string{v1beta1.LabelShard: p.shard}
	if p.zone != "" {
		known[corev1.LabelTopologyZone] = p.zone
	}
	return known
}

// excludesName returns why a shard of that name is none for the pod; empty if it may be.
func (n needs) excludesName(shard string) string {
	if n.shard == "" || n.shard == shard {
		return ""
	}
	return fmt.Sprintf("annotation %s is %s", v1beta1.AnnotationOnDemandShard, n.shard)
}

// excludes returns why the pod can't use a shard's Nodes; empty if it may.
func (n needs) excludes(facts map[string]string) string {
	for _, one := range n.all {
		holds := slices.ContainsFunc(one.terms, func(term []corev1.NodeSelectorRequirement) bool {
			return !slices.ContainsFunc(term, func(q corev1.NodeSelectorRequirement) bool { return !meets(q, facts) })
		})
		if !holds {
			return fmt.Sprintf("%s wants %s%s", one.from, one, shown(facts))
		}
	}
	return ""
}

// meets reports whether a requirement may hold. One about an unknown label may.
func meets(q corev1.NodeSelectorRequirement, facts map[string]string) bool {
	value, known := facts[q.Key]
	switch {
	case known && q.Operator == corev1.NodeSelectorOpIn:
		return slices.Contains(q.Values, value)
	case known && q.Operator == corev1.NodeSelectorOpNotIn:
		return !slices.Contains(q.Values, value)
	}
	return true
}

// String names the requirements that concern shards.
func (n need) String() string {
	var terms []string
	for _, term := range n.terms {
		var parts []string
		for _, q := range term {
			if concerns(q.Key) {
				parts = append(parts, fmt.Sprintf("%s %s (%s)", q.Key, q.Operator, strings.Join(q.Values, ", ")))
			}
		}
		if text := strings.Join(parts, " and "); text != "" && !slices.Contains(terms, text) {
			terms = append(terms, text)
		}
	}
	return strings.Join(terms, " or ")
}

func concerns(key string) bool { return key == corev1.LabelTopologyZone || key == v1beta1.LabelShard }

func shown(facts map[string]string) string {
	if zone := facts[corev1.LabelTopologyZone]; zone != "" {
		return "; the shard's zone is " + zone
	}
	return ""
}

// needsOf returns the constraints of a pod and of its bound volumes.
func needsOf(ctx context.Context, api client.Reader, pod *corev1.Pod) (needs, error) {
	n := needs{shard: pod.Annotations[v1beta1.AnnotationOnDemandShard], all: constraints(&pod.Spec)}
	for _, name := range volumeClaims(pod) {
		v, err := volume(ctx, api, pod.Namespace, name)
		if err != nil {
			return needs{}, err
		}
		if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
			n.all = append(n.all, need{"PersistentVolume " + v.Name, termsOf(a.Required)})
		}
	}
	return n, nil
}

// constraints returns the required ones of a pod's own spec.
func constraints(spec *corev1.PodSpec) (all []need) {
	for _, key := range []string{corev1.LabelTopologyZone, v1beta1.LabelShard} {
		if value, set := spec.NodeSelector[key]; set {
			in := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
			all = append(all, need{"spec.nodeSelector", [][]corev1.NodeSelectorRequirement{{in}}})
		}
	}
	a := spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return all
	}
	return append(all, need{"spec.affinity.nodeAffinity", termsOf(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)})
}

func termsOf(s *corev1.NodeSelector) (terms [][]corev1.NodeSelectorRequirement) {
	for _, t := range s.NodeSelectorTerms {
		terms = append(terms, t.MatchExpressions)
	}
	return terms
}

// volumeClaims returns the names of a pod's PersistentVolumeClaims.
func volumeClaims(pod *corev1.Pod) (names []string) {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

// volume returns the volume that a PersistentVolumeClaim is bound to; an empty one if it is
// not bound, and so follows the pod.
func volume(ctx context.Context, api client.Reader, namespace, name string) (*corev1.PersistentVolume, error) {
	var bound corev1.PersistentVolumeClaim
	var v corev1.PersistentVolume
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &bound)
	if err == nil && bound.Spec.VolumeName != "" {
		err = api.Get(ctx, client.ObjectKey{Name: bound.Spec.VolumeName}, &v)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the volume of PersistentVolumeClaim %s/%s: %w", namespace, name, err)
	}
	return &v, nil
}
