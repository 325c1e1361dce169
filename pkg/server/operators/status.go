package operators

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// ETag changes with every change of a group's definition, and with one that is asked
// for it never becomes what it was before.
func ETag(g fleet.Group) string {
	sum := sha256.New()
	// A group is plain data, so it always encodes; maps come out sorted.
	_ = json.NewEncoder(sum).Encode(g)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// groupStatus tells everything about one group.
func groupStatus(shard Shard, key fleet.GroupKey) (*nstancev1.GroupStatus, error) {
	g, defined := shard.Groups.Group(key)
	vars, err := structpb.NewStruct(g.Vars)
	if err != nil {
		return nil, rpc.Invalid.Errorf("vars of group %s: %w", key.Name, err)
	}
	st := &nstancev1.GroupStatus{
		Key: key.Name, Tenant: key.Tenant, Template: g.Template, Size: int32(g.Size),
		InstanceType: g.InstanceType, SubnetPool: g.SubnetPool, Vars: vars,
		IsStatic: g.Static, StaticSize: int32(g.StaticSize), MaxSurge: g.MaxSurge.String(),
	}
	if defined {
		st.Etag = ETag(g)
	}
	if c, ok := shard.Capacity(g.InstanceType); ok {
		st.Capacity = &nstancev1.MachineCapacity{CpuMillis: c.CPUMillis, MemoryBytes: c.MemoryBytes, Arch: c.Arch}
	}
	for _, i := range shard.Instances.Group(key) {
		count(st, i, shard.Health(i.ID), g)
		if hasMachine(i) {
			st.ProviderIds = append(st.ProviderIds, i.Provider.ID)
			st.Instances = append(st.Instances, &nstancev1.GroupInstance{
				Id: string(i.ID), ProviderId: i.Provider.ID, NodeProviderId: shard.nodeProviderID(i), Zone: shard.Provider.Zone,
			})
		}
	}
	slices.Sort(st.ProviderIds)
	slices.SortFunc(st.Instances, func(a, b *nstancev1.GroupInstance) int { return strings.Compare(a.GetId(), b.GetId()) })
	st.Conditions = conditions(shard, g, st)
	return st, nil
}

// count adds an instance to its group's numbers. Actual are those that run, have
// reported since the leader took over, and stay; draining ones still do their
// work; all others that have no tombstone yet are pending, whichever way they go.
func count(st *nstancev1.GroupStatus, i fleet.Instance, h Health, g fleet.Group) {
	if i.OnDemand || i.Phase == fleet.Deleted {
		return
	}
	switch {
	case i.Phase == fleet.Draining:
		st.DrainingSize++
	case i.Phase == fleet.Running && !h.LastReportAt.IsZero() && !slices.Contains(g.Leaving, i.ID):
		st.ActualSize++
		if !i.Hashes.Outdated(g.Hashes) {
			st.UpToDateSize++
		}
	default:
		st.PendingSize++
	}
}

// hasMachine reports whether an instance is one of its group's that has a machine,
// and is not being deleted.
func hasMachine(i fleet.Instance) bool {
	return !i.OnDemand && i.Provider.ID != "" && i.Phase != fleet.Deleting && i.Phase != fleet.Deleted
}

func conditions(shard Shard, g fleet.Group, st *nstancev1.GroupStatus) []*nstancev1.Condition {
	ready := &nstancev1.Condition{Type: "Ready", Status: st.ActualSize == st.Size && st.PendingSize == 0}
	if !ready.Status {
		ready.Reason = "NotAtSize"
	}
	out := append([]*nstancev1.Condition{ready}, definitionConditions(g)...)
	f, failing := fleet.CreatesFailing{}, false
	if shard.CreatesFailing != nil {
		f, failing = shard.CreatesFailing(g.Key)
	}
	if failing {
		out = append(out, createsFailing(f))
	}
	p, atSize := shard.Problems.OfGroup(g.Key)
	said := p.Message == "" || p.Message == g.RecordMissing || failing && sameWords(p, f)
	if !said && (atSize || !ready.Status) {
		out = append(out, &nstancev1.Condition{Type: "Degraded", Status: true, Reason: p.Reason, Message: p.Message})
	}
	return out
}

// definitionConditions are those of a group's definition, whatever its instances do.
func definitionConditions(g fleet.Group) (out []*nstancev1.Condition) {
	if g.RecordMissing != "" {
		out = append(out, &nstancev1.Condition{Type: "GroupRecordMissing", Status: true, Reason: "NotInStorage", Message: g.RecordMissing})
	}
	if g.Disabled != "" && g.Disabled != g.RecordMissing {
		out = append(out, &nstancev1.Condition{Type: "Disabled", Status: true, Reason: "InvalidDefinition", Message: g.Disabled})
	}
	if g.Removed && g.Disabled == "" { // one that is disabled stays as it is
		out = append(out, &nstancev1.Condition{Type: "Removed", Status: true, Reason: "GroupDeleted", Message: "the group is being emptied"})
	}
	return out
}
