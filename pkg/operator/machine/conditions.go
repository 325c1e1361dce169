package machine

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// What Ready gives as its reason.
const (
	reasonRunning     = "Running"
	reasonNoMachine   = "WaitingForMachine"
	reasonNoCluster   = "ClusterNotFound"
	reasonNoShard     = "NoShard"
	reasonRefused     = "Refused"
	reasonFailed      = "CallFailed"
	reasonNoCapacity  = "NoCapacity"
	reasonUnreachable = "ShardUnreachable"
	reasonUnknown     = "InstanceUnknown"
	reasonPending     = "Pending"
	reasonFailing     = "CreateFailing"
	reasonNoNodeID    = "WaitingForProviderID"
	reasonUnhealthy   = "Unhealthy"
	reasonDraining    = "Draining"
	reasonDeleting    = "Deleting"
	reasonGone        = "InstanceGone"
)

// What Terminating gives as its reason before the shard says one.
const (
	reasonReplaceAsked = "ReplacementAsked"
	reasonDeleteAsked  = "DeletionAsked"
)

// Of the other conditions.
const (
	reasonAnswers   = "Answers"
	reasonPaused    = "Paused"
	reasonNotPaused = "NotPaused"
)

// ready is the condition Ready; no reason: what it said before is as true as it was.
func ready(s *scope, o outcome) (is bool, reason, message string) {
	i := s.instance
	switch {
	case o.reason != "" && (o.err == nil || i == nil): // a call that is tried again says nothing of the instance
		return false, o.reason, o.message
	case gone(s):
		return false, reasonGone, end(s)
	case s.absent:
		return false, reasonUnknown, fmt.Sprintf("shard %s has no instance %s: spec.instanceID is to name one that is there",
			s.machine.Spec.Shard, s.machine.Spec.InstanceID)
	case i == nil && meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionReady) == nil:
		return false, reasonPending, "the shard has not told of the instance yet"
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
		return false, reasonNoNodeID, "the shard does not say yet which providerID the node has"
	case i.GetUnhealthyReason() != "":
		return false, reasonUnhealthy, i.GetUnhealthyReason()
	}
	return true, reasonRunning, ""
}

// works reports whether the machine is there and has registered.
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

// terminating is why and until when an instance leaves; no reason: it stays, as far as
// is known.
func terminating(s *scope, o outcome) (reason, message string) {
	i := s.instance
	switch {
	case i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		return camel(i.GetDrain().GetReason(), reasonDraining), drains(i)
	case i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETING:
		return camel(i.GetReason(), reasonDeleting), why(i)
	case o.terminating == reasonReplaceAsked:
		return o.terminating, "the shard makes another instance first; then this one is drained"
	case o.terminating != "":
		return o.terminating, "the shard was asked to delete the instance"
	}
	return "", ""
}

func drains(i *nstancev1.InstanceStatus) string {
	d := i.GetDrain()
	text := "the instance is drained: " + orElse(d.GetReason(), "no reason is given")
	if at := d.GetDeleteAt(); at != nil {
		text += "; it is deleted at " + at.AsTime().UTC().Format(time.RFC3339) + " at the latest"
	}
	return text
}

func why(i *nstancev1.InstanceStatus) string {
	return "the instance is being deleted: " + orElse(i.GetReason(), "no reason is given")
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

// camel makes a condition's reason of one of the server's, such as termination-notice.
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
