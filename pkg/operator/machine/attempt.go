package machine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// recheck is the longest wait after a refusal: what is refused does not change by itself, but a
// change may have been missed.
const recheck = 30 * time.Minute

// failing returns the waits after failures that may end by themselves.
func failing() retry.Backoff { return retry.Backoff{First: 10 * time.Second, Limit: 10 * time.Minute} }

// refused returns the waits after refusals of the provider, the first of which may have been a
// delay of its own.
func refused() retry.Backoff { return retry.Backoff{First: 30 * time.Second, Limit: recheck} }

// unmade reports whether the instance was requested here, is gone, and never registered: the
// attempt to create it has failed, and the next one uses the same objects. Anything that shows
// that it has registered means the opposite, since a moved object has lost its status.
func unmade(s *scope) bool {
	m := s.machine
	return !s.pooled() && m.Spec.InstanceID != "" && m.Spec.IdempotencyKey != "" && gone(s) && !provisioned(s)
}

func provisioned(s *scope) bool {
	done := s.machine.Status.Initialization.Provisioned
	return done != nil && *done || s.owner != nil && s.owner.Spec.ProviderID != "" || s.instance.GetRegisteredAt() != nil
}

// await records the failure of the last attempt, and stops the pass until the next one is due.
func (r *Reconciler) await(s *scope) stepResult {
	m, c := s.machine, s.machine.Status.Creation
	if unmade(s) && (c == nil || c.RetryTime == nil || c.InstanceID != m.Spec.InstanceID) {
		reason, message := failureOf(s)
		return r.failed(s, reason, message)
	}
	if c == nil || c.RetryTime == nil || m.Spec.InstanceID != "" && !unmade(s) {
		return stepResult{}
	}
	if left := due(c, s).Sub(r.Now()); left > 0 {
		return waiting(c, left)
	}
	return stepResult{}
}

// failed returns the result of a failed attempt.
func (r *Reconciler) failed(s *scope, reason, message string) stepResult {
	c := &v1beta1.Creation{
		Failures: 1, Reason: reason, Message: message, InstanceID: s.machine.Spec.InstanceID,
		GroupVersion: s.group.GetEtag(), ObservedGeneration: s.machine.Generation,
	}
	if was := s.machine.Status.Creation; was != nil {
		c.Failures = was.Failures + 1
	}
	now := r.Now()
	wait := pause(c.Reason, int(c.Failures))
	wait = retry.Backoff{First: wait, Limit: wait, Least: wait * 3 / 4}.Draw(1, r.Jitter)
	c.FailureTime, c.RetryTime = new(metav1.NewTime(now)), new(metav1.NewTime(now.Add(wait)))
	o := waiting(c, wait)
	o.creation = c
	return o
}

// pause returns the longest wait after that many failed attempts.
func pause(reason string, failures int) time.Duration {
	switch {
	case reason == v1beta1.CreationRefused:
		return refused().Delay(2*failures - 1) // four times as long each time
	case final(reason):
		return recheck
	}
	return failing().Delay(failures)
}

// final reports whether the reason lasts until the group or the spec changes.
func final(reason string) bool {
	switch reason {
	case v1beta1.CreationGroupNotFound, v1beta1.CreationNotAllowed, v1beta1.CreationInvalid, v1beta1.CreationRefused:
		return true
	default:
		return false
	}
}

// due returns when the next attempt is due: sooner, but with back-off, if the group or the spec
// has changed since a refusal.
func due(c *v1beta1.Creation, s *scope) time.Time {
	at := c.RetryTime.Time
	changed := c.ObservedGeneration != s.machine.Generation || s.state.Synced && c.GroupVersion != s.group.GetEtag()
	if !changed || !final(c.Reason) || c.FailureTime == nil {
		return at
	}
	if sooner := c.FailureTime.Add(failing().Delay(int(c.Failures))); sooner.Before(at) {
		return sooner
	}
	return at
}

func waiting(c *v1beta1.Creation, left time.Duration) stepResult {
	text := fmt.Sprintf("%s; tried %s, next at %s", c.Message, times(c.Failures), c.RetryTime.UTC().Format(time.RFC3339))
	if final(c.Reason) {
		text += " or when the group changes"
	}
	return stepResult{reason: reasonCreateFailed, message: text, again: max(left, time.Millisecond)}
}

func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// failureOf returns why the instance was not created, from its tombstone.
func failureOf(s *scope) (reason, message string) {
	i, shard := s.instance, s.machine.Spec.Shard
	why, details, _ := strings.Cut(i.GetReason(), ": ")
	text := cmp.Or(i.GetLastError(), i.GetReason(), "no reason is known")
	text = strings.ToValidUTF8(text[:min(len(text), longest)], "")
	switch why {
	case "create-failed":
		return v1beta1.CreationRefused,
			fmt.Sprintf("the provider of shard %s refuses to create the machine: %s", shard, text)
	case "create-timeout":
		return v1beta1.CreationTimedOut, fmt.Sprintf("shard %s could not create the machine in time: %s", shard, text)
	case "registration-timeout":
		unknown := "check that it runs nstance-agent and reaches the shard's registration address; its log says more"
		return v1beta1.CreationNotRegistered, fmt.Sprintf("the machine of instance %s on shard %s did not register in time: %s",
			s.machine.Spec.InstanceID, shard, cmp.Or(details, unknown))
	default:
		return v1beta1.CreationInstanceEnded,
			fmt.Sprintf("instance %s of shard %s ended before it registered: %s", s.machine.Spec.InstanceID, shard, text)
	}
}

// longest bounds an error's text in a status, in bytes.
const longest = 1024

// refusal returns why a shard refused to create an instance; false if the error does not say
// that it did.
func refusal(m *v1beta1.NstanceMachine, err error) (reason, message string, ok bool) {
	says := fmt.Sprintf("shard %s creates no instance of group %s: %s", m.Spec.Shard, m.Spec.Group, words(err))
	switch status.Code(err) {
	case codes.NotFound:
		return v1beta1.CreationGroupNotFound, says, true
	case codes.FailedPrecondition, codes.PermissionDenied, codes.Unimplemented:
		return v1beta1.CreationNotAllowed, says, true
	case codes.InvalidArgument:
		return v1beta1.CreationInvalid, says, true
	case codes.ResourceExhausted:
		return v1beta1.CreationNoCapacity, says, true
	default:
		return "", "", false
	}
}

// tombstone reports whether an answer to a create says that the key's instance is gone for
// good: the key never names another.
func tombstone(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}
