package pool

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// conditions says what is the matter with a pool. Its parts say more about each shard.
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

// reachable says which shards are silent. While one may only change its leader, or has
// not been heard yet, what was said before stays.
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
			"shards that can't be reached: "+strings.Join(lost, ", "))
	case answering == len(s.places):
		s.set(status, v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable", "")
	}
}

// notReady is the first thing that keeps a pool from being what is wanted.
func (s *scope) notReady() (reason, message string) {
	if s.owner == nil {
		return "WaitingForMachinePool", "no MachinePool owns it: one whose spec.template.spec.infrastructureRef names it will"
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
			return "GroupTaken", fmt.Sprintf("group %s on shard %s belongs to another NstanceMachinePool: want another group, or not this shard",
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
		return "NoShard", fmt.Sprintf("spec.failureDomains of MachinePool %s names none of spec.shards: want at least one", s.owner.Name)
	case len(unknown) > 0:
		return "ShardsUnknown", "nothing is known yet of the shards " + strings.Join(unknown, ", ")
	case len(waiting) > 0:
		return "ShardGroupsNotReady", "the group is not ready on the shards " + strings.Join(waiting, ", ")
	}
	return "", ""
}

// failing says which shards fail to make instances, and why the first of them does.
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
