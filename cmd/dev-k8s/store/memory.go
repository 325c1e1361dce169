package store

import (
	"slices"
	"sort"
)

// Entry is one version of a key.
type Entry struct {
	Key   string
	Value []byte // shared: nobody may change it
	// Create and Mod are the revisions that made the key and this version, Version
	// counts those since. A deleted key has Mod alone.
	Create, Mod, Version int64
	Lease                int64
}

// Deleted reports whether this version says that there is no such key.
func (e *Entry) Deleted() bool { return e.Create == 0 }

// Event is one revision: what a key became, and what it was, nil if it was not there.
type Event struct{ Entry, Prev *Entry }

// memory holds all keys, and for each the versions since the last compaction.
type memory struct {
	rev, compacted int64
	keys           []string // sorted, with those whose deletion is not yet compacted
	versions       map[string][]*Entry
	events         []Event // of the revisions above compacted, in order
}

func newMemory() *memory { return &memory{versions: map[string][]*Entry{}} }

// now returns what a key is; nil when it is not.
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

// apply takes the next revision in.
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

// within calls with every key from one, and before the end, until it returns false.
// An end of "\x00" is that of all keys, an empty one asks for one key.
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

// since returns the events of the revisions above one.
func (m *memory) since(rev int64) []Event {
	i := sort.Search(len(m.events), func(i int) bool { return m.events[i].Entry.Mod > rev })
	return m.events[i:]
}

// compact forgets every version that was not the last one at the revision.
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
