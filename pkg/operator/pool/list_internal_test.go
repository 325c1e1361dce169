package pool

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/shards"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// stubShards are shards without a network, each with the same instances.
type stubShards struct {
	Shards

	instances []*nstancev1.InstanceStatus
	unsynced  string // this shard, until its instances were read
	missing   bool
	read      map[string]bool
}

func (x *stubShards) State(shard string) (shards.State, bool) {
	return shards.State{Synced: shard != x.unsynced || x.read[shard]}, true
}

func (x *stubShards) Instances(shard, _ string) []*nstancev1.InstanceStatus {
	x.read[shard] = true
	return x.instances
}

func (x *stubShards) Instance(string, string) *nstancev1.InstanceStatus { return nil }

func (x *stubShards) Missing(string, string, string) bool { return x.missing }

// instanceWith returns an instance of a phase with a provider ID.
func instanceWith(id, providerID string, phase nstancev1.InstancePhase) *nstancev1.InstanceStatus {
	return &nstancev1.InstanceStatus{Id: id, NodeProviderId: providerID, Phase: phase}
}

// TestNextListOfIDs: an ID goes only if its instance is certainly gone: not because a dead instance
// had the same one, and not while a shard may still report it.
func TestNextListOfIDs(t *testing.T) {
	living := instanceWith("a", "p", nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING)
	dead := instanceWith("b", "p", nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
	for name, c := range map[string]struct {
		told     []*nstancev1.InstanceStatus
		unsynced string
		missing  bool // what no shard reports
		object   bool // there is an NstanceMachine of an instance that no shard reports
		had      []string
		want     []string
	}{
		"a dead one before the living": {told: []*nstancev1.InstanceStatus{dead, living}, had: []string{"p"}, want: []string{"p"}},
		"a dead one after the living":  {told: []*nstancev1.InstanceStatus{living, dead}, had: []string{"p"}, want: []string{"p"}},
		"dead":                         {told: []*nstancev1.InstanceStatus{dead}, had: []string{"p"}},
		"of another pool":              {told: []*nstancev1.InstanceStatus{living}},
		"unknown":                      {missing: true, had: []string{"p"}},
		"unknown, and not sure":        {had: []string{"p"}, want: []string{"p"}},
		"unknown, one shard unsynced":  {missing: true, unsynced: "one", had: []string{"p"}, want: []string{"p"}},
		"and this is an object's":      {missing: true, unsynced: "two", had: []string{"p"}, want: []string{"p"}},
		"object, certainly gone":       {missing: true, object: true, had: []string{"q"}},
		"object, not certainly gone":   {object: true, had: []string{"q"}, want: []string{"q"}},
	} {
		r := &Reconciler{Shards: &stubShards{instances: c.told, unsynced: c.unsynced, missing: c.missing, read: map[string]bool{}}}
		other := &v1beta1.NstanceMachine{Spec: v1beta1.NstanceMachineSpec{Shard: "two", InstanceID: "x"}}
		if c.object {
			other.Spec.ProviderID = "q"
		}
		s := &scope{
			pool: &v1beta1.NstanceMachinePool{}, places: []place{{shard: "one"}}, infra: map[string]*v1beta1.NstanceMachine{"x": other},
		}
		got := r.evidence(s).next(c.had, func(string) bool { return c.missing && !c.object })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
