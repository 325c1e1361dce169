package fleet

import "time"

// Group is the desired state of one group: static config, template, defaults and the
// dynamic entry merged into one value. It is immutable; a config change makes a new one.
type Group struct {
	Key      GroupKey
	Template string
	Kind     string
	Arch     string

	Size         int
	SizeUnset    bool // nothing sets Size, so it is the default
	InstanceType string
	SubnetPool   string
	Subnets      []string // the pool's provider subnets, in order of preference

	Args          map[string]any // unrendered
	Vars          map[string]any
	Userdata      Userdata
	Files         map[string]File
	FilesOptional bool // instances are ready without Files, too
	LoadBalancers []string
	DrainTimeout  time.Duration // 0: delete at once
	MaxSurge      Surge         // while working instances are replaced
	RolloutPaused bool          // no working instance is replaced for its definition or age
	Aborted       bool          // the group's record has an abort of a rollout
	Refuses       string        // the infra hash of a definition that the group does not become; empty: none
	Asked         *Asked        // that definition, while it is asked for; nil: the group has what is asked for
	OnDemand      *OnDemand     // nil: pods get no instances of the group
	Manager       string        // the only one that changes the group without force; empty: none

	Static     bool // defined in the static config
	StaticSize int  // size in the static config; 0 if not Static

	Removed  bool         // being removed: scale to zero, then forget
	Leaving  []InstanceID // to be removed and not replaced; Size already excludes them
	Revision uint64       // of the dynamic entry: raised by each change
	// RecordRevision is the revision of the stored record: what the instances created by it
	// hold. 0 if there is none, even if Revision continues that of an earlier record.
	RecordRevision uint64
	Hashes         Hashes
	Disabled       string // why the group can't be acted on; empty if it can
	// FilesHeld means that the desired files are unknown: instances keep the files they
	// have. A Disabled group may still know its files.
	FilesHeld bool
	// RecordMissing says why the group's record, or its override, is considered lost: it is
	// gone without a record of its removal. Empty if it is there. While it is missing no
	// working instance is removed. A group without a known definition is Disabled too.
	RecordMissing string
}

// Asked is what a group that refuses a definition would be built from.
type Asked struct {
	InstanceType string
	SubnetPool   string
	Infra        string // hash
}

// AskedFor returns what the config and the group's record ask for.
func (g *Group) AskedFor() Asked {
	if g.Asked != nil {
		return *g.Asked
	}
	return Asked{g.InstanceType, g.SubnetPool, g.Hashes.Infra}
}

// AwaitsFiles reports whether an instance that has no files is not ready.
func (g *Group) AwaitsFiles() bool { return len(g.Files) > 0 && !g.FilesOptional && !g.FilesHeld }

// Userdata is the script or data that a VM runs at its first boot.
type Userdata struct {
	Source   string `json:"source,omitempty"`   // inline
	Encoding string `json:"encoding,omitempty"` // plain | gzip
	Content  string `json:"content,omitempty"`
}

// File is one file that an instance receives after it registers.
type File struct {
	Kind     string         `json:"kind"` // certificate | secret | storage | env | json | string
	Template string         `json:"template,omitempty"`
	Key      *FileKey       `json:"key,omitempty"`
	Source   string         `json:"source,omitempty"`
	Content  any            `json:"content,omitempty"`
	Values   map[string]any `json:"values,omitempty"`
}

// FileKey describes the private key of a certificate file, and its source.
type FileKey struct {
	Source    string `json:"source"` // agent
	Name      string `json:"name"`
	Algorithm string `json:"algorithm,omitempty"` // ed25519 (also if empty) | ecdsa-p256
}

// Algorithms of a FileKey.
const (
	KeyEd25519   = "ed25519"
	KeyECDSAP256 = "ecdsa-p256"
)
