package fleet

import "time"

// Group is one group as it is wanted: static config, template, defaults and the
// dynamic entry merged into one value. It is immutable once built; a config
// change makes a new one.
type Group struct {
	Key      GroupKey
	Template string
	Kind     string
	Arch     string

	Size         int
	InstanceType string
	SubnetPool   string
	Subnets      []string // the pool's provider subnets, in the order to try them

	Args          map[string]any // not rendered yet
	Vars          map[string]any
	Userdata      Userdata
	Files         map[string]File
	LoadBalancers []string
	DrainTimeout  time.Duration // 0: delete at once
	MaxSurge      Surge         // while instances that work are replaced

	Static     bool // named by the static config
	StaticSize int  // that it says there; 0 for a group of its own

	Removed  bool         // on its way out: scale to zero, then forget
	Leaving  []InstanceID // asked to go; nothing takes their place in this size
	Revision uint64       // of what the API says of it: raised by each change
	Hashes   Hashes
	Disabled string // why the group can't be acted on; empty when it can
	// RecordMissing says that the group's record, or its override, is gone and that
	// nothing says that it was to go; empty: it is there. Meanwhile no instance is
	// removed that works. A group of which no definition is known is Disabled too.
	RecordMissing string
}

// Userdata is what a VM runs at its first boot.
type Userdata struct {
	Source   string `json:"source,omitempty"`   // inline
	Encoding string `json:"encoding,omitempty"` // plain | base64 | gzip
	Content  string `json:"content,omitempty"`
}

// File is one thing that an instance receives after it registered.
type File struct {
	Kind     string         `json:"kind"` // certificate | secret | storage | env | json | string
	Template string         `json:"template,omitempty"`
	Key      *FileKey       `json:"key,omitempty"`
	Source   string         `json:"source,omitempty"`
	Content  any            `json:"content,omitempty"`
	Values   map[string]any `json:"values,omitempty"`
}

// FileKey says who holds the private key of a certificate file.
type FileKey struct {
	Source    string `json:"source"` // agent
	Name      string `json:"name"`
	Algorithm string `json:"algorithm,omitempty"` // ed25519 (also if empty) | ecdsa-p256
}

// The algorithms of a FileKey.
const (
	KeyEd25519   = "ed25519"
	KeyECDSAP256 = "ecdsa-p256"
)
