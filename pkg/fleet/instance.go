package fleet

import (
	"maps"
	"slices"
	"time"
)

// Instance is the durable record of one instance: the truth about it, one
// object in storage. The leader alone writes it, always with Rev one higher, so
// that its bytes and its etag change on every write and a writer that lost a
// reply can recognise its own work by Writer and Rev.
type Instance struct {
	ID       InstanceID `json:"id"`
	Tenant   string     `json:"tenant"`
	Group    string     `json:"group"`
	OnDemand bool       `json:"on_demand,omitempty"`
	// Overrides are what was asked for this instance alone; on-demand ones only.
	Overrides *Overrides `json:"overrides,omitempty"`
	// RequestKey is the idempotency key that names the instance; empty when it was
	// asked for without one. On-demand ones only.
	RequestKey string `json:"request_key,omitempty"`

	Phase  Phase  `json:"phase"`
	Reason string `json:"reason,omitempty"`
	// Failure says in words why the instance comes to nothing: nobody has seen a
	// machine of it. While the phase is deleting there may still be one, which is
	// deleted; a deleted one has none. At most MaxFailure bytes of valid UTF-8; empty
	// when there was a machine, or the instance has not been given up.
	Failure string `json:"failure,omitempty"`

	Epoch  uint64 `json:"epoch"`
	Rev    uint64 `json:"rev"`
	Writer string `json:"writer"`

	CreatedAt       time.Time  `json:"created_at"`
	RegisteredAt    *time.Time `json:"registered_at,omitempty"`
	PublicKeySHA256 string     `json:"public_key_sha256,omitempty"`
	// OtherKeysSHA256 are the other public keys that the instance was given certificates
	// for, renewed ones and those of its files. The newest is last; at most MaxOtherKeys.
	OtherKeysSHA256 []string `json:"other_keys_sha256,omitempty"`
	Hostname        string   `json:"hostname,omitempty"`
	IPs             []string `json:"ips,omitempty"`

	Provider ProviderRef `json:"provider"`
	Hashes   Hashes      `json:"hashes"`
	Drain    *Drain      `json:"drain,omitempty"`
	// RemovalAskedAt is when somebody asked that just this instance goes. A managed
	// one is replaced first. What else happens to it meanwhile does not matter.
	RemovalAskedAt *time.Time `json:"removal_asked_at,omitempty"`
	DeletedAt      *time.Time `json:"deleted_at,omitempty"`
}

// Overrides differ from what the group says. They are not changed once the
// instance is recorded.
type Overrides struct {
	InstanceType string         `json:"instance_type,omitempty"`
	Vars         map[string]any `json:"vars,omitempty"` // merged over the group's
}

// MaxOtherKeys bounds OtherKeysSHA256: an instance has at most 64 keys for its files
// at one time, and leaves some behind.
const MaxOtherKeys = 128

// AddKeys notes public keys that the instance is given certificates for, of which the
// oldest are forgotten if there are too many. It reports whether any was new.
func (i *Instance) AddKeys(fingerprints ...string) (added bool) {
	for _, f := range fingerprints {
		if f != i.PublicKeySHA256 && !slices.Contains(i.OtherKeysSHA256, f) {
			i.OtherKeysSHA256 = append(i.OtherKeysSHA256, f)
			added = true
		}
	}
	i.OtherKeysSHA256 = i.OtherKeysSHA256[max(0, len(i.OtherKeysSHA256)-MaxOtherKeys):]
	return added
}

// MaxFailure is the length of the longest Failure.
const MaxFailure = 1024

// ProviderRef is what the record knows of the VM. CreateAttemptedAt is set, and
// durable, before the provider is asked, and none again when it certainly refused:
// without it there is no VM, unless ID names one. CreateAttempt counts the attempts
// before the present one that certainly made nothing. It is part of what the provider
// knows a repeated create by, is durable before the provider is asked, and never falls.
type ProviderRef struct {
	ID                string     `json:"id,omitempty"`
	Subnet            string     `json:"subnet,omitempty"`
	InstanceType      string     `json:"instance_type,omitempty"`
	CreateAttemptedAt *time.Time `json:"create_attempted_at,omitempty"`
	CreateAttempt     int        `json:"create_attempt,omitempty"`
}

// Hashes tell what configuration an instance was built with. A different Infra
// hash asks for a rotation; a different Runtime hash for a push of files.
type Hashes struct {
	Infra   string `json:"infra"`
	Runtime string `json:"runtime"`
}

// Outdated reports whether a machine of h was made from another definition than
// now's. One of which either is not known is not.
func (h Hashes) Outdated(now Hashes) bool {
	return h.Infra != "" && now.Infra != "" && h.Infra != now.Infra
}

// Drain is the plan to take work off an instance. DeleteAt is when it goes at
// the latest.
type Drain struct {
	Reason   string     `json:"reason"`
	DeleteAt time.Time  `json:"delete_at"`
	AckedAt  *time.Time `json:"acked_at,omitempty"`
}

// Failed reports whether the instance came to nothing, and not because somebody
// asked that it goes.
func (i Instance) Failed() bool { return i.Failure != "" && i.RemovalAskedAt == nil }

// GroupKey names the group that the instance belongs to.
func (i Instance) GroupKey() GroupKey { return GroupKey{Tenant: i.Tenant, Name: i.Group} }

// Clone returns a copy that shares no memory with i, but for the values of
// overridden vars, which nobody changes.
func (i Instance) Clone() Instance {
	i.RegisteredAt = clone(i.RegisteredAt)
	i.RemovalAskedAt = clone(i.RemovalAskedAt)
	i.DeletedAt = clone(i.DeletedAt)
	i.Provider.CreateAttemptedAt = clone(i.Provider.CreateAttemptedAt)
	i.IPs = append([]string(nil), i.IPs...)
	i.OtherKeysSHA256 = append([]string(nil), i.OtherKeysSHA256...)
	if i.Overrides != nil {
		i.Overrides = &Overrides{InstanceType: i.Overrides.InstanceType, Vars: maps.Clone(i.Overrides.Vars)}
	}
	if i.Drain != nil {
		d := *i.Drain
		d.AckedAt = clone(d.AckedAt)
		i.Drain = &d
	}
	return i
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
