package machine

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Reasons of Ready.
const (
	reasonRunning      = "Running"
	reasonNoMachine    = "WaitingForMachine"
	reasonNoCluster    = "ClusterNotFound"
	reasonNoShard      = "NoShard"
	reasonRefused      = "Refused"
	reasonFailed       = "CallFailed"
	reasonNoCapacity   = "NoCapacity"
	reasonUnreachable  = "ShardUnreachable"
	reasonUnknown      = "InstanceUnknown"
	reasonPending      = "Pending"
	reasonFailing      = "CreateFailing"
	reasonCreateFailed = "CreateFailed"
	reasonNoNodeID     = "WaitingForProviderID"
	reasonUnhealthy    = "Unhealthy"
	reasonDraining     = "Draining"
	reasonDeleting     = "Deleting"
	reasonGone         = "InstanceGone"
)

// Reasons of Terminating before the shard gives one.
const (
	reasonReplaceAsked = "ReplacementAsked"
	reasonDeleteAsked  = "DeletionAsked"
)

// Reasons of the other conditions.
const (
	reasonAnswers   = "Answers"
	reasonPaused    = "Paused"
	reasonNotPaused = "NotPaused"
)

// ready returns the condition Ready; an empty reason leaves the condition as it is.
func ready(s *scope, o stepResult) (is bool, reason, message string) {
	i := s.instance
	switch {
	case o.reason != "" && (o.err == nil || i == nil): // a failed call that is retried says nothing about the instance
		return false, o.reason, o.message
	case gone(s):
		return false, reasonGone, end(s)
	case s.absent:
		return false, reasonUnknown, fmt.Sprintf("shard %s has no instance %s: set spec.instanceID to an instance that exists",
			s.machine.Spec.Shard, s.machine.Spec.InstanceID)
	case i == nil && meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionReady) == nil:
		return false, reasonPending, "the shard has not reported the instance yet"
	case i == nil:
		return false, "", ""
	}
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		return false, reasonDraining, drains(i)
	case nstancev1.InstancePhase_INSTANCE_PHASE_DELETING:
		return false, reasonDeleting, why(i)
	case nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING:
		return runs(s)
	default:
		if i.GetLastError() != "" {
			return false, reasonFailing, i.GetLastError()
		}
		return false, reasonPending, "the machine has not registered yet"
	}
}

func runs(s *scope) (is bool, reason, message string) {
	switch i := s.instance; {
	case s.machine.Spec.ProviderID == "":
		return false, reasonNoNodeID, "the shard has not reported the node's providerID yet"
	case i.GetUnhealthyReason() != "":
		return false, reasonUnhealthy, i.GetUnhealthyReason()
	}
	return true, reasonRunning, ""
}

// works reports whether the machine runs and has registered.
func works(i *nstancev1.InstanceStatus) bool {
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING:
		return true
	case nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		return i.GetRegisteredAt() != nil
	default:
		return false
	}
}

// terminating returns why and until when an instance is being removed; an empty reason if it
// is not, as far as is known.
func terminating(s *scope, o stepResult) (reason, message string) {
	i := s.instance
	switch {
	case i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		return camel(i.GetDrain().GetReason(), reasonDraining), drains(i)
	case i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETING:
		return camel(i.GetReason(), reasonDeleting), why(i)
	case o.terminating == reasonReplaceAsked:
		return o.terminating, "the shard creates a replacement first, then drains this instance"
	case o.terminating != "":
		return o.terminating, "the shard was asked to delete the instance"
	}
	return "", ""
}

func drains(i *nstancev1.InstanceStatus) string {
	d := i.GetDrain()
	text := "the instance is being drained: " + orElse(d.GetReason(), "no reason given")
	if at := d.GetDeleteAt(); at != nil {
		text += "; it will be deleted by " + at.AsTime().UTC().Format(time.RFC3339)
	}
	return text
}

func why(i *nstancev1.InstanceStatus) string {
	return "the instance is being deleted: " + orElse(i.GetReason(), "no reason given")
}

func end(s *scope) string {
	i := s.instance
	text := fmt.Sprintf("the instance %s is gone", s.machine.Spec.InstanceID)
	for _, more := range []string{i.GetReason(), i.GetLastError()} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// camel converts a reason of the server's, such as termination-notice, to a condition's.
func camel(reason, other string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(reason, func(c rune) bool { return !letterOrDigit(c) }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if s := b.String(); s != "" && (s[0] < '0' || s[0] > '9') {
		return s
	}
	return other
}

func letterOrDigit(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
