package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/record"
)

// Dynamic is what the leader keeps of changes that came through the API, one
// object per shard:
//
//	{
//	  "epoch": 3, "rev": 12, "writer": "…",
//	  "groups": { "<tenant>": { "<group>": { "size": 5, "leaving": ["…"] } } }
//	}
//
// The header is like that of every object that changes: whoever writes sets
// Epoch and Writer and raises Rev, so that the bytes differ on every write. The
// functions that edit leave it alone. A Dynamic is immutable; edits return a
// new one.
type Dynamic struct {
	Epoch  uint64                      `json:"epoch"`
	Rev    uint64                      `json:"rev"`
	Writer string                      `json:"writer"`
	Groups map[string]map[string]Entry `json:"groups"`

	// unknown is what a newer version keeps here beside.
	unknown record.Unknown
}

// Entry is what is kept of one group. A field that is absent leaves the group
// as static config and template have it, so that an entry with a size changes
// the size and nothing else. Args, LoadBalancers and DrainTimeout are there for a group
// that outlived its static definition.
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
	Leaving       []fleet.InstanceID `json:"leaving,omitempty"` // sorted, each once
	Removed       bool               `json:"removed,omitempty"` // scale to zero, then forget
	// Missing marks what the leader wrote in place of an entry that had gone without a
	// sign that it was to go: what was known of it, or only how many instances there
	// are. Nothing that works is removed until a change or a reset ends it.
	Missing bool `json:"missing,omitempty"`
	// Undefined: beside Missing, nothing is known but Size, which is how many there are.
	Undefined bool `json:"undefined,omitempty"`
	// SizeKept: Size is how many there were when a create without one defined a group of
	// which nothing was known, so that it can be repeated. Over when a size is given.
	SizeKept bool `json:"size_kept,omitempty"`
	// Revision rises with every change that is asked for; 0 before there was one,
	// or when it was made by a version that has none.
	Revision uint64 `json:"revision,omitempty"`

	// unknown is what a newer version keeps of the group beside.
	unknown record.Unknown
	// unread is the text of an entry that can't be read, kept as it is so that
	// the next write does not lose it; unreadable is what is wrong with it,
	// with paths relative to the entry.
	unread     json.RawMessage
	unreadable Problems
}

// entryFields is Entry without its methods, for encoding.
type entryFields Entry

// MarshalJSON writes an entry with what a newer version keeps in it, and one that
// couldn't be read as it was found.
func (e Entry) MarshalJSON() ([]byte, error) {
	if e.unread != nil {
		return e.unread, nil
	}
	return record.Encode(entryFields(e), e.unknown)
}

// ParseDynamic reads dynamic groups, comments and trailing commas allowed. An
// entry that is bad in itself does not fail the text: Resolve reports it and
// disables its group. The error, of type Problems, is for a text that is bad
// around the entries, which names no group that could be disabled. Fields that
// this version does not know are kept, and Resolve names them.
func ParseDynamic(data []byte) (Dynamic, error) {
	root, err := parseSyntax(data)
	if err != nil {
		return Dynamic{}, err
	}
	var raw struct {
		Epoch  uint64                             `json:"epoch"`
		Rev    uint64                             `json:"rev"`
		Writer string                             `json:"writer"`
		Groups map[string]map[string]hujson.Value `json:"groups"`
	}
	d := newDecoder(data)
	d.tolerant = true
	d.decode("", root, reflect.ValueOf(&raw).Elem())
	unknown := passed[Dynamic](d, root)
	if err := d.problems.sorted().Err(); err != nil {
		return Dynamic{}, err
	}
	out := Dynamic{Epoch: raw.Epoch, Rev: raw.Rev, Writer: raw.Writer, Groups: map[string]map[string]Entry{}, unknown: unknown}
	for tenant, groups := range raw.Groups {
		out.Groups[tenant] = make(map[string]Entry, len(groups))
		for name, value := range groups {
			out.Groups[tenant][name] = parseEntry(data, value)
		}
	}
	return out.tidied(), nil
}

// parseEntry reads one entry, or keeps its text and what is wrong with it.
func parseEntry(text []byte, v hujson.Value) Entry {
	var entry Entry
	d := newDecoder(text)
	d.tolerant = true
	d.decode("", v, reflect.ValueOf(&entry).Elem())
	entry.unknown = passed[Entry](d, v)
	problems := append(d.problems, entry.check()...)
	if len(problems) == 0 {
		return entry
	}
	return Entry{unread: plain(v), unreadable: problems.sorted()}
}

// passed returns the fields of v that d passed over because T has none of their
// names.
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

// plain is the text of a value as JSON without comments.
func plain(v hujson.Value) []byte {
	clone := v.Clone()
	clone.Minimize()
	return clone.Pack()
}

// check reports what is wrong with an entry whatever the static config says.
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
	v.vars("vars", e.Vars)
	v.args("args", e.Args)
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

// ErrTooLarge is wrapped by the error about groups that could not be read again.
var ErrTooLarge = errors.New("too large")

func tooLarge(size int) error {
	return fmt.Errorf("encode dynamic groups: %w: %d bytes, of which only %d can be read again: remove groups or vars",
		ErrTooLarge, size, MaxSize)
}

// Encode writes the object to store. The same value gives the same bytes. It
// fails when the result would be too large to be read again.
func (d Dynamic) Encode() ([]byte, error) {
	if d.Groups == nil {
		d.Groups = map[string]map[string]Entry{}
	}
	compact, err := record.Encode(d, d.unknown)
	if err != nil {
		return nil, fmt.Errorf("encode dynamic groups: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, compact, "", "  "); err != nil {
		return nil, fmt.Errorf("encode dynamic groups: %w", err)
	}
	data := indented.Bytes()
	if len(data) >= MaxSize {
		return nil, tooLarge(len(data))
	}
	return append(data, '\n'), nil
}

// Entry returns what is kept of a group, and whether there is anything.
func (d Dynamic) Entry(key fleet.GroupKey) (Entry, bool) {
	e, ok := d.Groups[key.Tenant][key.Name]
	return e, ok
}

// with returns a copy of d in which key has the entry.
func (d Dynamic) with(key fleet.GroupKey, entry Entry) Dynamic {
	d.Groups = maps.Clone(d.Groups)
	if d.Groups == nil {
		d.Groups = map[string]map[string]Entry{}
	}
	groups := maps.Clone(d.Groups[key.Tenant])
	if groups == nil {
		groups = map[string]Entry{}
	}
	groups[key.Name] = entry
	d.Groups[key.Tenant] = groups
	return d
}

// tidied drops tenants without a group, which say nothing.
func (d Dynamic) tidied() Dynamic {
	maps.DeleteFunc(d.Groups, func(_ string, groups map[string]Entry) bool { return len(groups) == 0 })
	return d
}
