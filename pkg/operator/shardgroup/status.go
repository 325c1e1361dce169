package shardgroup

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// shardView is the observed state of an object's shard and group.
type shardView struct {
	shard      string
	state      shards.State
	configured bool
	group      *nstancev1.GroupStatus
	last       last
	now        time.Time
	wait       *ctrl.Result // if set, too little is known to do anything

	invalid problem // why the spec can't be applied
	settled bool    // the group matches the spec
	leaving bool    // it is being deleted
}

// problem is a condition's reason and message; zero means none.
type problem struct{ reason, message string }

// heard reports whether the shard is reachable.
func (v shardView) heard() bool { return v.configured && v.state.Reachable }

// problem returns the last call's problem, if it is lasting.
func (l last) problem() problem {
	if text := l.refusal(); text != "" {
		return problem{"Refused", text}
	}
	if l.err == nil && !l.deletes {
		return problem{"NotShown", "the shard accepted the change but does not report it: it may be of another version"}
	}
	return problem{}
}

// pausedStatus returns the status of a paused object: only the condition Paused changes.
func pausedStatus(o *v1beta1.NstanceShardGroup) v1beta1.NstanceShardGroupStatus {
	s := *o.Status.DeepCopy()
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1beta1.ConditionPaused, Status: metav1.ConditionTrue,
		Reason: "Paused", ObservedGeneration: o.Generation, Message: "the object or its Cluster is paused"})
	return s
}

// status returns the object's status. It equals the previous status unless something changed.
func (v shardView) status(o *v1beta1.NstanceShardGroup) v1beta1.NstanceShardGroupStatus {
	s := *o.Status.DeepCopy()
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		was := meta.FindStatusCondition(s.Conditions, kind)
		if was != nil && was.Reason == reason && fleet.WithoutIDs(was.Message) == fleet.WithoutIDs(message) {
			message = was.Message
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(v.now),
		})
	}
	set(v1beta1.ConditionPaused, metav1.ConditionFalse, "NotPaused", "")
	switch {
	case !v.configured:
		text := fmt.Sprintf("the operator's config has no shard %s", v.shard)
		set(v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardNotConfigured", text)
		set(v1beta1.ConditionReady, metav1.ConditionUnknown, "ShardNotConfigured", text)
		return s
	case !v.state.Reachable:
		text := fmt.Sprintf("shard %s does not answer", v.shard)
		set(v1beta1.ConditionShardReachable, metav1.ConditionFalse, "ShardUnreachable", text)
		set(v1beta1.ConditionReady, metav1.ConditionUnknown, "ShardUnreachable", text)
		return s
	}
	set(v1beta1.ConditionShardReachable, metav1.ConditionTrue, "Reachable", "")
	if v.settled {
		s.ObservedGeneration = o.Generation
	}
	v.numbers(&s)
	invalid, failing := v.configProblem(), v.failing()
	set(verdict(v1beta1.ConditionConfigValid, invalid, metav1.ConditionFalse, "Valid"))
	set(verdict(v1beta1.ConditionCreatesFailing, failing, metav1.ConditionTrue, "NotFailing"))
	set(verdict(v1beta1.ConditionReady, v.unready(invalid, failing), metav1.ConditionFalse, "Ready"))
	if !equality.Semantic.DeepEqual(s, o.Status) { // a new time alone is no change
		s.LastSyncTime = new(metav1.NewTime(v.now))
	}
	return s
}

// verdict returns a condition with status bad if there is a problem, or else with the opposite
// status and reason fine.
func verdict(kind string, p problem, bad metav1.ConditionStatus, fine string) (string, metav1.ConditionStatus, string, string) {
	if p.reason != "" {
		return kind, bad, p.reason, p.message
	}
	if bad == metav1.ConditionFalse {
		return kind, metav1.ConditionTrue, fine, ""
	}
	return kind, metav1.ConditionFalse, fine, ""
}

// numbers sets the status fields that come from the shard's group.
func (v shardView) numbers(s *v1beta1.NstanceShardGroupStatus) {
	g := v.group
	config := v1beta1.ShardGroupConfig{}
	if s.IsStatic, s.ActualSize, s.UpToDateSize = nil, new(g.GetActualSize()), new(g.GetUpToDateSize()); g != nil {
		s.IsStatic = new(g.GetIsStatic())
		config = v1beta1.ShardGroupConfig{
			Template: g.GetTemplate(), SubnetPool: g.GetSubnetPool(), InstanceType: g.GetInstanceType(), Vars: fromStruct(g.GetVars()),
			Size: new(g.GetSize()), ETag: g.GetEtag(),
		}
		if g.GetIsStatic() {
			config.StaticSize = new(g.GetStaticSize())
		}
	}
	if sameVars(config.Vars, s.Config.Vars) {
		config.Vars = s.Config.Vars
	}
	s.Config = config
}

// configProblem returns why the group does not match the spec.
func (v shardView) configProblem() problem {
	if v.invalid.reason != "" {
		return v.invalid
	}
	if c := shards.Condition(v.group, "Disabled"); c != nil {
		return problem{reason(c), c.GetMessage()}
	}
	return problem{}
}

// failing returns why the shard's creates for the group fail, without the changing counts and
// times.
func (v shardView) failing() problem {
	c := shards.Condition(v.group, v1beta1.ConditionCreatesFailing)
	if c == nil {
		return problem{}
	}
	text := c.GetMessage()
	if at := strings.LastIndex(text, " ("); at > 0 {
		text = text[:at]
	}
	return problem{reason(c), text}
}

// unready returns the first reason why the group lacks instances.
func (v shardView) unready(invalid, failing problem) problem {
	g := v.group
	switch degraded := cmp.Or(shards.Condition(g, "StorageUnreachable"), shards.Condition(g, "Degraded")); {
	case v.leaving:
		return problem{"Deleting", "the group is being emptied"}
	case invalid.reason != "":
		return invalid
	case !v.settled:
		return problem{"NotSynced", "the shard has not applied the spec yet"}
	case g.GetActualSize() == g.GetSize() && g.GetUpToDateSize() == g.GetActualSize():
		return notInEffect(g)
	case failing.reason != "":
		return failing
	case degraded != nil:
		return problem{reason(degraded), degraded.GetMessage()}
	default:
		return notAtSize(g)
	}
}

// notInEffect says that all instances have another definition than the one that is asked for, since its rollout
// was aborted.
func notInEffect(g *nstancev1.GroupStatus) problem {
	if c := shards.Condition(g, "RolloutAborted"); c != nil && c.GetReason() == "Refused" {
		return problem{c.GetType(), c.GetMessage()}
	}
	return problem{}
}

// notAtSize says that instances lack their files, how many of them run, or how many are up to date, and
// whether that is as far as they get.
func notAtSize(g *nstancev1.GroupStatus) problem {
	for _, c := range g.GetConditions() {
		if c.GetType() == "Ready" && c.GetReason() == "AwaitingFiles" {
			return problem{reason(c), c.GetMessage()}
		}
	}
	if g.GetActualSize() != g.GetSize() {
		return problem{"NotAtSize", fmt.Sprintf("%d of %d instances are running", g.GetActualSize(), g.GetSize())}
	}
	for _, kind := range []string{"RolloutPaused", "Rotating"} {
		if c := shards.Condition(g, kind); c != nil {
			return problem{kind, c.GetMessage()}
		}
	}
	return problem{"Rotating", fmt.Sprintf("%d of %d instances are up to date", g.GetUpToDateSize(), g.GetActualSize())}
}

// conditionReason matches valid condition reasons of Kubernetes.
var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// reason returns a condition's reason, or else its type.
func reason(c *nstancev1.Condition) string {
	if !conditionReason.MatchString(c.GetReason()) {
		return c.GetType()
	}
	return c.GetReason()
}
