package fleet

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Instance is the durable record of one instance, one object in storage. Only the
// leader writes it. Each write increments Rev, so the object's bytes and etag change
// and a writer that lost a reply can recognise its own write by Writer and Rev.
type Instance struct {
	ID     InstanceID `json:"id"`
	Tenant string     `json:"tenant"`
	Group  string     `json:"group"`
	// GroupRevision is the revision of the group's record that the instance was created
	// from; 0 if the group had only its static config.
	GroupRevision uint64 `json:"group_revision,omitempty"`
	OnDemand      bool   `json:"on_demand,omitempty"`
	// Overrides apply to this instance alone. On-demand instances only.
	Overrides *Overrides `json:"overrides,omitempty"`
	// RequestKey is the idempotency key of the request that created the instance; empty if
	// it had none. On-demand instances only.
	RequestKey string `json:"request_key,omitempty"`
	// Namespace is the Kubernetes Namespace of the pod that the instance is for; empty if
	// it is for no pod. On-demand instances only.
	Namespace string `json:"namespace,omitempty"`

	Phase  Phase  `json:"phase"`
	Reason string `json:"reason,omitempty"`
	// Failure says why the instance was given up without a machine ever being seen. While the
	// phase is deleting a machine may still exist and is being deleted. At most MaxFailure
	// bytes of valid UTF-8; empty if there was a machine or the instance was not given up.
	Failure string `json:"failure,omitempty"`

	Epoch  uint64 `json:"epoch"`
	Rev    uint64 `json:"rev"`
	Writer string `json:"writer"`

	CreatedAt       time.Time  `json:"created_at"`
	RegisteredAt    *time.Time `json:"registered_at,omitempty"`
	PublicKeySHA256 string     `json:"public_key_sha256,omitempty"`
	// OtherKeysSHA256 are the other public keys that certificates were issued to the
	// instance for, by renewal or for its files. The newest is last; at most MaxOtherKeys.
	OtherKeysSHA256 []string `json:"other_keys_sha256,omitempty"`
	// Hostname and IPs are the names that the instance's certificates may contain, set when
	// it registers: its id or its name in the provider's DNS, and the addresses that the
	// provider assigned. Nothing that the machine claims about itself is used.
	Hostname string   `json:"hostname,omitempty"`
	IPs      []string `json:"ips,omitempty"`

	Provider ProviderRef `json:"provider"`
	Hashes   Hashes      `json:"hashes"`
	Drain    *Drain      `json:"drain,omitempty"`
	// RemovalAskedAt is when the removal of this instance was requested; it is kept whatever
	// else happens to the instance. A managed instance is replaced first.
	RemovalAskedAt *time.Time `json:"removal_asked_at,omitempty"`
	DeletedAt      *time.Time `json:"deleted_at,omitempty"`
}

// Overrides replace values of the group for one instance. They never change once the
// instance is recorded.
type Overrides struct {
	InstanceType string         `json:"instance_type,omitempty"`
	Vars         map[string]any `json:"vars,omitempty"` // merged over the group's
}

// MaxOtherKeys bounds OtherKeysSHA256: an instance has at most 64 keys for its files at
// one time, and the record also holds older ones.
const MaxOtherKeys = 128

// AddKeys records public keys that certificates are issued for, dropping the oldest beyond
// MaxOtherKeys. It reports whether any key was new.
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

// Addresses returns the addresses in given as text, without duplicates: those in first (the
// ones that certificates contain) come first and in that order, the others follow.
func Addresses(first []string, given []netip.Addr) []string {
	out := make([]string, 0, len(given))
	for _, text := range first {
		if addr, err := netip.ParseAddr(text); err == nil && slices.Contains(given, addr) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, addr := range given {
		if text := addr.String(); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// MaxFailure is the maximum length of a Failure, in bytes.
const MaxFailure = 1024

// ProviderRef identifies the VM and its creation attempts. CreateAttemptedAt is stored
// before the provider is called, and is cleared when the provider definitely refused:
// without it there is no VM, unless ID is set. CreateAttempt counts the earlier attempts
// that definitely created nothing. It is part of the provider's idempotency token, is
// stored before the provider is called, and never decreases.
type ProviderRef struct {
	ID                string     `json:"id,omitempty"`
	Subnet            string     `json:"subnet,omitempty"`
	InstanceType      string     `json:"instance_type,omitempty"`
	CreateAttemptedAt *time.Time `json:"create_attempted_at,omitempty"`
	CreateAttempt     int        `json:"create_attempt,omitempty"`
}

// Hashes identify the configuration that an instance was built with. A changed Infra hash
// causes a rotation, a changed Runtime hash a push of files.
type Hashes struct {
	Infra   string `json:"infra"`
	Runtime string `json:"runtime"`
}

// Outdated reports whether a machine with hashes h was built from another definition than
// now. False if either hash is unknown.
func (h Hashes) Outdated(now Hashes) bool {
	return h.Infra != "" && now.Infra != "" && h.Infra != now.Infra
}

// Drain is the state of an instance's drain. DeleteAt is its deadline: the instance is
// deleted then at the latest.
type Drain struct {
	Reason   string     `json:"reason"`
	DeleteAt time.Time  `json:"delete_at"`
	AckedAt  *time.Time `json:"acked_at,omitempty"`
}

// Failed reports whether the instance was given up without a machine, and not because its
// removal was requested.
func (i Instance) Failed() bool { return i.Failure != "" && i.RemovalAskedAt == nil }

// GroupKey returns the key of the instance's group.
func (i Instance) GroupKey() GroupKey { return GroupKey{Tenant: i.Tenant, Name: i.Group} }

// Clone returns a deep copy of i, except for the values of overridden vars, which never
// change.
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
