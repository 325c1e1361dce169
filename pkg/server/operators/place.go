package operators

import (
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Capacity is the capacity of an instance type.
type Capacity struct {
	CPUMillis   int64 // thousandths of a CPU
	MemoryBytes int64
	Arch        string // amd64 | arm64
}

// nodeProviderID returns the Kubernetes provider ID of an instance of the shard.
func (s Shard) nodeProviderID(i fleet.Instance) string {
	return fleet.NodeProviderID(s.Provider.Kind, s.Provider.Zone, i.Provider.ID)
}

// statusOf returns the status of one instance.
func statusOf(shard Shard, i fleet.Instance) *nstancev1.InstanceStatus {
	h := shard.Health(i.ID)
	st := instanceStatus(i, h)
	st.IdempotencyKey, st.NodeProviderId = i.RequestKey, shard.nodeProviderID(i)
	st.ProviderKind, st.Region, st.Zone = shard.Provider.Kind, shard.Provider.Region, shard.Provider.Zone
	st.FilesUpToDate = filesUpToDate(shard, i, h)
	return st
}

// filesUpToDate is nil while it is not known.
func filesUpToDate(shard Shard, i fleet.Instance, h Health) *bool {
	if !h.Connected {
		return nil
	}
	g, _ := shard.Groups.Group(i.GroupKey())
	is := shard.FilesUpToDate(i, g)
	if !is && h.ConfigHash == "" && !h.WithoutFiles {
		return nil
	}
	return &is
}
