package pool

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// conditions sets the pool's conditions. Its NstanceShardGroups have more detail on each
// shard.
func (s *scope) conditions(status *v1beta1.NstanceMachinePoolStatus) {
	s.set(status, v1beta1.ConditionPaused, metav1.ConditionFalse, "NotPaused", "")
	if reason, message := s.notReady(); reason != "" {
		s.set(status, v1beta1.ConditionReady, metav1.ConditionFalse, reason, message)
	} else {
		s.set(status, v1beta1.ConditionReady, metav1.ConditionTrue, "Ready", "")
	}
	s.reachable(status)
	if reason, message := s.failing(); reason != "" {
		s.set(status, v1beta1.ConditionCreatesFailing, metav1.ConditionTrue, reason, message)
	} else {
		s.set(status, v1beta1.ConditionCreatesFailing, metav1.ConditionFalse, "CreatesWork", "")
	}
}

// reachable sets which shards are unreachable. While a shard may only be changing its leader,
// or has not been contacted yet, the condition stays.
func (s *scope) reachable(status *v1beta1.NstanceMachinePoolStatus) {
	var lost []string
	answering := 0
	for _, p := range s.places {
		if p.silent {
			lost = append(lost, p.shard)
		}
		if p.state.Reachable {
			answering++
		}
	}
	switch {
	case len(lost) > 0:
		s.set(status, v1beta1.ConditionShardReachable, metav1.ConditionFalse, "Unreachable",
			"unreachable shards: "+strings.Join(lost, ", "))
	case answering == len(s.places):
		s.set(status, v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable", "")
	}
}

// notReady returns the first reason why a pool is not ready; empty if it is.
func (s *scope) notReady() (reason, message string) {
	if s.owner == nil {
		return "WaitingForMachinePool", "no MachinePool owns it: create one whose spec.template.spec.infrastructureRef names it"
	}
	if n := deref(s.owner.Spec.Replicas, 1); n > maxReplicas {
		return "TooManyReplicas", fmt.Sprintf("spec.replicas of MachinePool %s: %d, want at most %d", s.owner.Name, n, maxReplicas)
	}
	var unknown, waiting []string
	selected := false
	for _, p := range s.places {
		selected = selected || p.selected
		switch {
		case p.foreign:
			return "GroupTaken", fmt.Sprintf("group %s on shard %s belongs to another NstanceMachinePool: use another group, or remove the shard",
				s.pool.Spec.Group, p.shard)
		case p.unknown():
			unknown = append(unknown, p.shard)
		case p.group == nil:
			if p.selected {
				waiting = append(waiting, p.shard)
			}
		case !meta.IsStatusConditionTrue(p.group.Status.Conditions, v1beta1.ConditionReady):
			waiting = append(waiting, p.shard)
		}
	}
	switch {
	case !selected:
		return "NoShard", fmt.Sprintf("spec.failureDomains of MachinePool %s has none of spec.shards: want at least one", s.owner.Name)
	case len(unknown) > 0:
		return "ShardsUnknown", "no state received yet from the shards " + strings.Join(unknown, ", ")
	case len(waiting) > 0:
		return "ShardGroupsNotReady", "the group is not ready on the shards " + strings.Join(waiting, ", ")
	}
	return "", ""
}

// failing returns which shards fail to create instances, and the first one's error.
func (s *scope) failing() (reason, message string) {
	var all []string
	for _, p := range s.places {
		if !p.ours() {
			continue
		}
		c := meta.FindStatusCondition(p.group.Status.Conditions, v1beta1.ConditionCreatesFailing)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		if reason == "" {
			reason = c.Reason
		}
		all = append(all, fmt.Sprintf("shard %s: %s", p.shard, c.Message))
	}
	return reason, strings.Join(all, "; ")
}
