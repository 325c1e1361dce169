package store

import (
	"slices"
	"sort"
)

// Entry is one version of a key.
type Entry struct {
	Key   string
	Value []byte // shared: must not be changed
	// Create and Mod are the revisions of the key's creation and of this version, Version
	// counts since the creation. A deleted key has only Mod.
	Create, Mod, Version int64
	Lease                int64
}

// Deleted reports whether this version is a deletion.
func (e *Entry) Deleted() bool { return e.Create == 0 }

// Event is one revision: a key's new and previous version; Prev is nil if it did not exist.
type Event struct{ Entry, Prev *Entry }

// memory holds all keys, each with its versions since the last compaction.
type memory struct {
	rev, compacted int64
	keys           []string // sorted, including deleted ones until compaction
	versions       map[string][]*Entry
	events         []Event // of the revisions above compacted, in order
}

func newMemory() *memory { return &memory{versions: map[string][]*Entry{}} }

// now returns a key's current version; nil if it does not exist.
func (m *memory) now(key string) *Entry { return m.at(key, m.rev) }

func (m *memory) at(key string, rev int64) *Entry {
	versions := m.versions[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if v := versions[i]; v.Mod <= rev {
			if v.Deleted() {
				return nil
			}
			return v
		}
	}
	return nil
}

// apply adds the next revision.
func (m *memory) apply(e *Entry) {
	m.events = append(m.events, Event{Entry: e, Prev: m.now(e.Key)})
	m.insert(e)
	m.rev = e.Mod
}

func (m *memory) insert(e *Entry) {
	if _, known := m.versions[e.Key]; !known {
		i, _ := slices.BinarySearch(m.keys, e.Key)
		m.keys = slices.Insert(m.keys, i, e.Key)
	}
	m.versions[e.Key] = append(m.versions[e.Key], e)
}

// within calls each with every key from key up to end, until it returns false. An end of
// "\x00" means all keys, an empty end one key.
func (m *memory) within(key, end string, rev int64, each func(*Entry)) {
	if end == "" {
		if e := m.at(key, rev); e != nil {
			each(e)
		}
		return
	}
	i, _ := slices.BinarySearch(m.keys, key)
	for ; i < len(m.keys) && (end == "\x00" || m.keys[i] < end); i++ {
		if e := m.at(m.keys[i], rev); e != nil {
			each(e)
		}
	}
}

// since returns the events after a revision.
func (m *memory) since(rev int64) []Event {
	i := sort.Search(len(m.events), func(i int) bool { return m.events[i].Entry.Mod > rev })
	return m.events[i:]
}

// compact drops every version that was not current at the revision.
func (m *memory) compact(rev int64) {
	n := len(m.events) - len(m.since(rev))
	gone := false
	for _, event := range m.events[:n] {
		key := event.Entry.Key
		versions := m.versions[key]
		last := 0
		for i, v := range versions {
			if v.Mod <= rev {
				last = i
			}
		}
		if len(versions) > 0 && versions[last].Mod <= rev && versions[last].Deleted() {
			last++
		}
		switch rest := versions[last:]; {
		case len(rest) == 0:
			delete(m.versions, key)
			gone = true
		case last > 0:
			m.versions[key] = slices.Clone(rest)
		}
	}
	if gone {
		m.keys = slices.DeleteFunc(m.keys, func(key string) bool { return m.versions[key] == nil })
	}
	m.events = slices.Clone(m.events[n:])
	m.compacted = rev
}
