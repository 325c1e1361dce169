package operators

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/outage"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// ETag identifies the version of a group's definition: the revision of its record, which
// never comes again, and a hash of what static config adds to it.
func ETag(g fleet.Group) string {
	// Only fields that are set are in the hash, so that a new field leaves the others' ETags
	// as they are.
	said, _ := json.Marshal(struct { // plain data always encodes, and maps come out sorted
		Key           fleet.GroupKey
		Template      string          `json:",omitzero"`
		Size          int             `json:",omitzero"`
		InstanceType  string          `json:",omitzero"`
		SubnetPool    string          `json:",omitzero"`
		Subnets       []string        `json:",omitempty"`
		Vars          map[string]any  `json:",omitempty"`
		LoadBalancers []string        `json:",omitempty"`
		DrainTimeout  time.Duration   `json:",omitzero"`
		MaxSurge      fleet.Surge     `json:",omitzero"`
		OnDemand      *fleet.OnDemand `json:",omitempty"`
		FilesOptional bool            `json:",omitzero"`
		RolloutPaused bool            `json:",omitzero"`
		Manager       string          `json:",omitzero"`
		Hashes        fleet.Hashes    `json:",omitzero"`
		Static        bool            `json:",omitzero"`
		StaticSize    int             `json:",omitzero"`
		Disabled      string          `json:",omitzero"`
		Asked         *fleet.Asked    `json:",omitempty"`
		Refuses       string          `json:",omitzero"`
	}{
		g.Key, g.Template, g.Size, g.InstanceType, g.SubnetPool, g.Subnets, g.Vars, g.LoadBalancers, g.DrainTimeout, g.MaxSurge,
		g.OnDemand, g.FilesOptional, g.RolloutPaused, g.Manager, g.Hashes, g.Static, g.StaticSize, g.Disabled, g.Asked,
		g.Refuses,
	})
	sum := sha256.Sum256(said)
	return fmt.Sprintf("%d-%x", g.Revision, sum[:6])
}

// groupStatus returns the status of one group.
func groupStatus(shard Shard, key fleet.GroupKey) (*nstancev1.GroupStatus, error) {
	g, defined := shard.Groups.Group(key)
	asked := g.AskedFor()
	vars, err := structpb.NewStruct(g.Vars)
	if err != nil {
		return nil, rpc.Invalid.Errorf("vars of group %s: %w", key.Name, err)
	}
	st := &nstancev1.GroupStatus{
		Key: key.Name, Tenant: key.Tenant, Template: g.Template, Size: int32(g.Size),
		InstanceType: asked.InstanceType, SubnetPool: asked.SubnetPool, Vars: vars,
		IsStatic: g.Static, StaticSize: int32(g.StaticSize), MaxSurge: g.MaxSurge.String(),
		OnDemand: showOnDemand(g.OnDemand), RolloutPaused: g.RolloutPaused, Manager: g.Manager,
	}
	if defined {
		st.Etag = ETag(g)
		st.DrainTimeout = durationpb.New(g.DrainTimeout)
	}
	if c, ok := shard.Capacity(g.InstanceType); ok {
		st.Capacity = &nstancev1.MachineCapacity{CpuMillis: c.CPUMillis, MemoryBytes: c.MemoryBytes, Arch: c.Arch}
	}
	var waits unready
	for _, i := range shard.Instances.Group(key) {
		if waits.count(st, i, shard.Health(i.ID), g) && shard.FilesUpToDate(i, g) {
			st.FilesUpToDateSize++
		}
		if hasMachine(i) {
			st.Instances = append(st.Instances, &nstancev1.GroupInstance{
				Id: string(i.ID), ProviderId: i.Provider.ID, NodeProviderId: shard.nodeProviderID(i), Zone: shard.Provider.Zone,
			})
		}
	}
	slices.SortFunc(st.Instances, func(a, b *nstancev1.GroupInstance) int { return strings.Compare(a.GetId(), b.GetId()) })
	st.Conditions = conditions(shard, g, st, waits)
	shard.Transitions.stamp(key, st.GetConditions())
	return st, nil
}

// unready counts the pending instances of a group that run.
type unready struct {
	silent       int32 // have not reported to this leader, and would count as actual otherwise
	withoutFiles int32 // have reported that they have no files
}

// count adds an instance to its group's counters, and reports whether it is actual: running, reported
// since takeover, not dead, not leaving, and not known to lack files that the group requires. Draining
// instances count as draining, and all others without a tombstone as pending: they start, stop or lack
// their files.
func (u *unready) count(st *nstancev1.GroupStatus, i fleet.Instance, h Health, g fleet.Group) (actual bool) {
	stays := i.Phase == fleet.Running && !h.Dead && !slices.Contains(g.Leaving, i.ID)
	switch {
	case i.OnDemand || i.Phase == fleet.Deleted:
	case i.Phase == fleet.Draining:
		st.DrainingSize++
	case !stays:
		st.PendingSize++
	case h.LastReportAt.IsZero():
		st.PendingSize++
		u.silent++
	case h.WithoutFiles && g.AwaitsFiles():
		st.PendingSize++
		u.withoutFiles++
	default:
		st.ActualSize++
		if !i.Hashes.Outdated(g.Hashes) {
			st.UpToDateSize++
		}
		return true
	}
	return false
}

// hasMachine reports whether an instance is managed, has a machine, and is not being deleted.
func hasMachine(i fleet.Instance) bool {
	return !i.OnDemand && i.Provider.ID != "" && i.Phase != fleet.Deleting && i.Phase != fleet.Deleted
}

func conditions(shard Shard, g fleet.Group, st *nstancev1.GroupStatus, waits unready) []*nstancev1.Condition {
	ready := waits.readiness(st)
	out := append([]*nstancev1.Condition{ready}, definitionConditions(g)...)
	if g.RolloutPaused && !g.Removed {
		out = append(out, rolloutPaused(st))
	}
	if g.Refuses != "" && !g.Removed {
		out = append(out, rolloutAborted(g, st))
	}
	if o := shard.Outage(); o.Lasts() {
		out = append(out, storageUnreachable(o))
	} else if c, ok := rotating(g, shard.rotation(g.Key)); ok {
		out = append(out, c)
	}
	f, failing := fleet.CreatesFailing{}, false
	if shard.CreatesFailing != nil {
		f, failing = shard.CreatesFailing(g.Key)
	}
	if failing {
		out = append(out, createsFailing(f))
	}
	p := shard.Problems.OfGroup(g.Key, ready.GetStatus() == conditionTrue)
	if said := p.Message == "" || p.Message == g.RecordMissing || failing && sameWords(p, f); !said {
		out = append(out, trueCondition(conditionDegraded, p.Reason, p.Message))
	}
	return out
}

// conditionDegraded says what keeps a group from its desired state.
const conditionDegraded = "Degraded"

// The status of a condition, in the words of Kubernetes.
const (
	conditionTrue    = "True"
	conditionFalse   = "False"
	conditionUnknown = "Unknown"
)

func trueCondition(kind, reason, message string) *nstancev1.Condition {
	return &nstancev1.Condition{Type: kind, Status: conditionTrue, Reason: reason, Message: message}
}

func rolloutPaused(st *nstancev1.GroupStatus) *nstancev1.Condition {
	return trueCondition("RolloutPaused", "Requested", fmt.Sprintf("working instances that are outdated are not replaced until the "+
		"rollout is resumed: %d of %d were made from another definition", st.ActualSize-st.UpToDateSize, st.ActualSize))
}

func rolloutAborted(g fleet.Group, st *nstancev1.GroupStatus) *nstancev1.Condition {
	if g.Asked == nil {
		return trueCondition("RolloutAborted", "AnotherDefinition", fmt.Sprintf("definition %s is refused until all instances have another "+
			"one, or its rollout is retried", g.Refuses))
	}
	return trueCondition("RolloutAborted", "Refused", fmt.Sprintf("definition %s, which is asked for, is refused; machines are built from "+
		"%s, as before: %d of %d instances have another one", g.Refuses, g.Hashes.Infra, st.ActualSize-st.UpToDateSize, st.ActualSize))
}

// ConditionStorageUnreachable is the type of the condition that the leader can't write to object
// storage.
const ConditionStorageUnreachable = "StorageUnreachable"

func storageUnreachable(o outage.Outage) *nstancev1.Condition {
	reason := "NoAnswer"
	if o.Reason != "" {
		reason = "RequestsFail"
	}
	return trueCondition(ConditionStorageUnreachable, reason,
		o.String()+": nothing can be changed, and no machine is created or replaced until then")
}

// readiness is the condition Ready: whether the group has the instances that it should have,
// and no others. It is unknown while that depends on instances which have not reported to
// this leader yet.
func (u unready) readiness(st *nstancev1.GroupStatus) *nstancev1.Condition {
	ready := &nstancev1.Condition{Type: "Ready", Status: conditionTrue}
	switch {
	case st.ActualSize == st.Size && st.PendingSize == 0:
	case u.silent > 0 && st.ActualSize+u.silent == st.Size && st.PendingSize == u.silent:
		ready.Status, ready.Reason = conditionUnknown, "AwaitingReports"
		ready.Message = fmt.Sprintf("%d of %d instances have not reported to this leader yet", u.silent, st.Size)
	default:
		ready.Status, ready.Reason = conditionFalse, "NotAtSize"
		ready.Message = fmt.Sprintf("%d of %d instances run, %d are pending", st.ActualSize, st.Size, st.PendingSize)
		if u.withoutFiles > 0 {
			ready.Reason = "AwaitingFiles"
			ready.Message += fmt.Sprintf("; %d of them without their files", u.withoutFiles)
		}
	}
	return ready
}

// definitionConditions are those of a group's definition, whatever its instances do.
func definitionConditions(g fleet.Group) (out []*nstancev1.Condition) {
	if g.RecordMissing != "" {
		out = append(out, trueCondition("GroupRecordMissing", "NotInStorage", g.RecordMissing))
	}
	if g.Disabled != "" && g.Disabled != g.RecordMissing {
		out = append(out, trueCondition("Disabled", "InvalidDefinition", g.Disabled))
	}
	if g.Removed && g.Disabled == "" { // one that is disabled stays as it is
		out = append(out, trueCondition("Removed", "GroupDeleted", "the group is being emptied"))
	}
	return out
}
