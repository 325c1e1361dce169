package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/record"
)

// Entries are what the leader keeps of one tenant's groups that came through the API,
// one object per tenant:
//
//	{
//	  "epoch": 3, "rev": 12, "writer": "…",
//	  "groups": { "<group>": { "size": 5, "leaving": ["…"] } }
//	}
//
// The text of each entry is kept beside it, so that a change costs what the changed
// entries cost, and a copy of the text of the others. Only a Draft changes it.
type Entries struct {
	header  Header
	entries map[string]Entry
	lines   []line // by name
	size    int    // of all lines
	unknown record.Unknown
	tail    []byte // the text of unknown
}

// line is the text of one entry with its name, as it stands in the object.
type line struct {
	name string
	text []byte
}

// textRoom is more than what stands around the lines, unknown fields aside.
const textRoom = 1 << 10

// ParseEntries reads the object of one tenant, as ParseDynamic reads that of all.
func ParseEntries(data []byte) (*Entries, error) {
	root, err := parseSyntax(data)
	if err != nil {
		return nil, err
	}
	var raw struct {
		Epoch  uint64                  `json:"epoch"`
		Rev    uint64                  `json:"rev"`
		Writer string                  `json:"writer"`
		Groups map[string]hujson.Value `json:"groups"`
	}
	d := newDecoder(data)
	d.tolerant = true
	d.decode("", root, reflect.ValueOf(&raw).Elem())
	unknown := passed[tenantFields](d, root)
	if err := d.problems.sorted().Err(); err != nil {
		return nil, err
	}
	entries := make(map[string]Entry, len(raw.Groups))
	for name, value := range raw.Groups {
		entries[name] = parseEntry(data, value)
	}
	return newTenant(Header{Epoch: raw.Epoch, Rev: raw.Rev, Writer: raw.Writer}, entries, unknown)
}

// tenantFields are the names of what this version keeps in a tenant's object.
type tenantFields struct {
	Epoch  uint64           `json:"epoch"`
	Rev    uint64           `json:"rev"`
	Writer string           `json:"writer"`
	Groups map[string]Entry `json:"groups"`
}

func newTenant(h Header, entries map[string]Entry, unknown record.Unknown) (*Entries, error) {
	tail, err := tailOf(unknown)
	if err != nil {
		return nil, fmt.Errorf("encode unknown fields: %w", err)
	}
	t := &Entries{header: h, entries: entries, unknown: unknown, tail: tail}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		l, err := newLine(name, entries[name])
		if err != nil {
			return nil, err
		}
		t.lines = append(t.lines, l)
		t.size += len(l.text)
	}
	return t, nil
}

func newLine(name string, e Entry) (line, error) {
	key, err := json.Marshal(name)
	if err != nil {
		return line{}, fmt.Errorf("encode group %.80q: %w", name, err)
	}
	compact, err := e.MarshalJSON()
	if err != nil {
		return line{}, fmt.Errorf("encode group %.80q: %w", name, err)
	}
	var text bytes.Buffer
	text.WriteString("    ")
	text.Write(key)
	text.WriteString(": ")
	if err := json.Indent(&text, compact, "    ", "  "); err != nil {
		return line{}, fmt.Errorf("encode group %.80q: %w", name, err)
	}
	return line{name, text.Bytes()}, nil
}

// OfTenant is what d keeps of one tenant, to be kept in an object of its own from now on.
func (d Dynamic) OfTenant(name string) (*Entries, error) {
	entries := maps.Clone(d.Groups[name])
	if entries == nil {
		entries = map[string]Entry{}
	}
	return newTenant(Header{Rev: d.Rev}, entries, record.Unknown{})
}

// Header is that of the object as it was read or written last.
func (t *Entries) Header() Header { return t.header }

// Names lists the groups that have an entry, sorted.
func (t *Entries) Names() []string {
	names := make([]string, 0, len(t.lines))
	for _, l := range t.lines {
		names = append(names, l.name)
	}
	return names
}

// Dynamic is all of it as dynamic groups of the tenant's name, to be read only.
func (t *Entries) Dynamic(name string) Dynamic {
	d := Dynamic{Epoch: t.header.Epoch, Rev: t.header.Rev, Writer: t.header.Writer, Groups: map[string]map[string]Entry{}}
	if len(t.entries) > 0 {
		d.Groups[name] = t.entries
	}
	return d
}

// Foreign reports the fields beside the groups that this version does not know.
func (t *Entries) Foreign() Problems { return foreign(t.unknown) }

// Differing lists the groups whose entry does not have the same text in both.
func (t *Entries) Differing(other *Entries) (names []string) {
	for _, l := range t.lines {
		if n, ok := other.find(l.name); !ok || !bytes.Equal(other.lines[n].text, l.text) {
			names = append(names, l.name)
		}
	}
	for _, l := range other.lines {
		if _, ok := t.entries[l.name]; !ok {
			names = append(names, l.name)
		}
	}
	return names
}

// Encode writes the object with a header. The same arguments give the same bytes.
func (t *Entries) Encode(h Header) ([]byte, error) { return t.Draft().Encode(h) }

// Draft is Entries with changes that are not made yet. It is good until those
// are changed.
type Draft struct {
	base    *Entries
	rev     uint64
	changed map[string]draftEntry
	size    int
}

// draftEntry is what becomes of one entry: without a text it goes.
type draftEntry struct {
	entry Entry
	line  line
}

// Draft begins a change of t.
func (t *Entries) Draft() *Draft {
	return &Draft{base: t, rev: t.header.Rev, changed: map[string]draftEntry{}, size: t.size}
}

// Entry returns what the draft keeps of a group, and whether there is anything.
func (d *Draft) Entry(name string) (Entry, bool) {
	if c, ok := d.changed[name]; ok {
		return c.entry, c.line.text != nil
	}
	e, ok := d.base.entries[name]
	return e, ok
}

// Only is what an edit of one group needs to see of the draft.
func (d *Draft) Only(tenant, name string) Dynamic {
	out := Dynamic{Rev: d.rev, Groups: map[string]map[string]Entry{}}
	if e, ok := d.Entry(name); ok {
		out.Groups[tenant] = map[string]Entry{name: e}
	}
	return out
}

// All is the whole draft as dynamic groups.
func (d *Draft) All(tenant string) Dynamic {
	groups := maps.Clone(d.base.entries)
	for name, c := range d.changed {
		if groups[name] = c.entry; c.line.text == nil {
			delete(groups, name)
		}
	}
	return Dynamic{Rev: d.rev, Groups: map[string]map[string]Entry{tenant: groups}}
}

// Take takes over what differs between two states of a tenant's groups, of which
// before is as Only or All returned it, and says which groups those are. It takes all
// or nothing, and fails when the result would be too large to be read again. With each
// change the rev rises, so that no revision of a group comes twice.
func (d *Draft) Take(tenant string, before, after Dynamic) (names []string, err error) {
	next, size := map[string]draftEntry{}, d.size
	was, is := before.Groups[tenant], after.Groups[tenant]
	for name, e := range is {
		old, ok := was[name]
		if ok && reflect.DeepEqual(old, e) {
			continue
		}
		l, err := newLine(name, e)
		if err != nil {
			return nil, err
		}
		next[name] = draftEntry{e, l}
		size += len(l.text) - d.lineSize(name)
	}
	for name := range was {
		if _, ok := is[name]; !ok {
			next[name] = draftEntry{}
			size -= d.lineSize(name)
		}
	}
	if grown := size + 2*(len(d.base.lines)+len(d.changed)+len(next)) + len(d.base.tail) + textRoom; size > d.size && grown >= MaxSize {
		return nil, tooLarge(grown)
	}
	maps.Copy(d.changed, next)
	if d.size = size; len(next) > 0 {
		d.rev++
	}
	return slices.Sorted(maps.Keys(next)), nil
}

func (d *Draft) lineSize(name string) int {
	if c, ok := d.changed[name]; ok {
		return len(c.line.text)
	}
	n, ok := d.base.find(name)
	if !ok {
		return 0
	}
	return len(d.base.lines[n].text)
}

func (t *Entries) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.lines, name, func(l line, name string) int { return strings.Compare(l.name, name) })
}

// Changed reports whether the draft holds any change.
func (d *Draft) Changed() bool { return len(d.changed) > 0 }

// Rev is the least rev that a write of the draft may bear.
func (d *Draft) Rev() uint64 { return d.rev }

// lines are those of the result.
func (d *Draft) lines() []line {
	if len(d.changed) == 0 {
		return d.base.lines
	}
	fresh := make([]line, 0, len(d.changed))
	for name := range d.changed {
		fresh = append(fresh, line{name, d.changed[name].line.text})
	}
	slices.SortFunc(fresh, func(a, b line) int { return strings.Compare(a.name, b.name) })
	out := make([]line, 0, len(d.base.lines)+len(fresh))
	rest := d.base.lines
	for _, l := range fresh {
		n, found := slices.BinarySearchFunc(rest, l.name, func(l line, name string) int { return strings.Compare(l.name, name) })
		out = append(out, rest[:n]...)
		if rest = rest[n:]; found {
			rest = rest[1:]
		}
		if l.text != nil {
			out = append(out, l)
		}
	}
	return append(out, rest...)
}

// Encode writes the result with a header.
func (d *Draft) Encode(h Header) ([]byte, error) {
	head, err := json.Marshal(h.Writer)
	if err != nil {
		return nil, fmt.Errorf("encode dynamic groups: %w", err)
	}
	lines := d.lines()
	var out bytes.Buffer
	out.Grow(d.size + 2*len(lines) + len(head) + len(d.base.tail) + textRoom)
	fmt.Fprintf(&out, "{\n  \"epoch\": %d,\n  \"rev\": %d,\n  \"writer\": %s,\n  \"groups\": {", h.Epoch, h.Rev, head)
	for n, l := range lines {
		if n > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(l.text)
	}
	if len(lines) > 0 {
		out.WriteString("\n  ")
	}
	out.WriteByte('}')
	out.Write(d.base.tail)
	out.WriteString("\n}\n")
	if out.Len() > MaxSize {
		return nil, tooLarge(out.Len())
	}
	return out.Bytes(), nil
}

// tailOf is the text of the fields that this version does not know, after those that it does.
func tailOf(unknown record.Unknown) ([]byte, error) {
	if unknown.IsZero() {
		return nil, nil
	}
	compact, err := record.Encode(struct{}{}, unknown)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, compact, "", "  "); err != nil {
		return nil, err
	}
	inner := bytes.TrimSuffix(bytes.TrimPrefix(text.Bytes(), []byte("{")), []byte("\n}"))
	return slices.Concat([]byte(","), inner), nil
}

// Land makes the changes, which were written with a header.
func (d *Draft) Land(h Header) {
	d.base.header = h
	d.base.lines, d.base.size = d.lines(), d.size
	for name, c := range d.changed {
		if c.line.text == nil {
			delete(d.base.entries, name)
		} else {
			d.base.entries[name] = c.entry
		}
	}
	d.changed = map[string]draftEntry{}
}
