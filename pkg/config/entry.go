package config

import (
	"errors"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/record"
)

// Entry is the stored state of one group. An absent field leaves that of static config and
// template in effect, so an entry with only a size overrides only the size. Args,
// LoadBalancers and DrainTimeout are used by groups that outlived their static definition.
type Entry struct {
	Template      *string            `json:"template,omitempty"`
	Size          *int               `json:"size,omitempty"`
	InstanceType  *string            `json:"instance_type,omitempty"`
	SubnetPool    *string            `json:"subnet_pool,omitempty"`
	Args          map[string]any     `json:"args,omitempty"`
	Vars          map[string]any     `json:"vars,omitempty"`
	LoadBalancers []string           `json:"load_balancers,omitempty"`
	DrainTimeout  *Duration          `json:"drain_timeout,omitempty"`
	Rotation      *Rotation          `json:"rotation,omitempty"`
	OnDemand      *fleet.OnDemand    `json:"on_demand,omitempty"`
	RolloutPaused bool               `json:"rollout_paused,omitempty"`
	Manager       string             `json:"manager,omitempty"` // the only one that changes the group without force
	Leaving       []fleet.InstanceID `json:"leaving,omitempty"` // sorted, unique
	Removed       bool               `json:"removed,omitempty"` // scale to zero, then delete the record
	// Missing marks an entry that the leader wrote in place of one that disappeared without a
	// deletion: its last known state, or only the number of instances. No working instance is
	// removed until a change or a reset clears it.
	Missing bool `json:"missing,omitempty"`
	// Undefined is set with Missing if only Size is known, which is the number of instances.
	Undefined bool `json:"undefined,omitempty"`
	// SizeKept: Size is the number of instances at the time when a create without a size
	// defined an Undefined group; it lets that create be repeated. Cleared when a size is set.
	SizeKept bool `json:"size_kept,omitempty"`
	// Kept is what the group's template last defined for its tenant, once the tenant may no
	// longer use it.
	Kept *Kept `json:"kept,omitempty"`
	// Replaced is what the last change that made instances outdated replaced, for an abort of its rollout.
	Replaced *Replaced `json:"replaced,omitempty"`
	// Aborted is the definition that the group refuses, and the one that it has instead.
	Aborted *Aborted `json:"aborted,omitempty"`
	// Revision is incremented by every requested change; 0 before the first, or if the record
	// was written by a version without revisions.
	Revision uint64 `json:"revision,omitempty"`

	// unknown has the fields of a newer version, which are written back.
	unknown record.Unknown
	// unreadable is why the object can't be read.
	unreadable Problems
}

// passed returns the fields of v that d skipped because T does not have them.
func passed[T any](d *decoder, v hujson.Value) record.Unknown {
	if !d.passed {
		return record.Unknown{}
	}
	unknown, err := record.Find[T](plain(v))
	if err != nil {
		d.problems.addf("", "%v", err)
	}
	return unknown
}

// plain returns a value as JSON without comments.
func plain(v hujson.Value) []byte {
	clone := v.Clone()
	clone.Minimize()
	return clone.Pack()
}

// check validates an entry independently of the static config.
func (e Entry) check() Problems {
	v := &validator{shard: &Shard{}}
	if e.Size != nil {
		between(&v.findings, "size", *e.Size, 0, MaxGroupSize)
	}
	if e.Revision > record.MaxNumber {
		v.addf("revision", "%d: want at most %d", e.Revision, uint64(record.MaxNumber))
	}
	if e.DrainTimeout != nil {
		v.duration("drain_timeout", *e.DrainTimeout, 0, maxDrainTimeout)
	}
	checkOnDemand(&v.findings, "on_demand", e.OnDemand)
	checkInstanceType(v, "instance_type", value(e.InstanceType))
	v.vars("vars", e.Vars)
	v.args("args", e.Args)
	e.Kept.check(v)
	e.Replaced.check(v)
	e.Aborted.check(v)
	if err := checkManager(e.Manager); err != nil {
		v.addf("manager", "%v", err)
	}
	for i, id := range e.Leaving {
		if _, err := fleet.ParseID(string(id)); err != nil {
			v.addf(at("leaving", i), "%v", err)
		}
	}
	if len(e.Leaving) > MaxGroupSize {
		v.addf("leaving", "%d ids: at most %d are allowed", len(e.Leaving), MaxGroupSize)
	}
	return v.problems
}

// ErrTooLarge is wrapped by the error for a record that is too large to be read again.
var ErrTooLarge = errors.New("too large")
