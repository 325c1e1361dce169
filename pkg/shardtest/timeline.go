package shardtest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Entry is one line of a Timeline.
type Entry struct {
	At    time.Duration // since the start
	Actor string
	Text  string
}

// String returns the line as text.
func (e Entry) String() string {
	return fmt.Sprintf("%12s  %-10s %s", clock(e.At), e.Actor, e.Text)
}

func clock(d time.Duration) string {
	d = d.Round(time.Millisecond)
	return fmt.Sprintf("%02d:%02d:%02d.%03d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60, d.Milliseconds()%1000)
}

// Timeline is the log of everything that happened in a shard. Ids of instances are replaced by
// i1, i2, … in the order of their first mention. Safe for concurrent use.
type Timeline struct {
	start time.Time

	mu      sync.Mutex
	entries []Entry // ids are replaced in the first named ones
	named   int
	names   map[string]string
}

// NewTimeline returns a timeline that begins now.
func NewTimeline() *Timeline {
	return &Timeline{start: time.Now(), names: map[string]string{}}
}

// idPattern matches ids and their form in storage keys.
var idPattern = regexp.MustCompile(`\b[a-z]{3}0[0-9a-hjkmnp-tv-z]{25}\b|` +
	`\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-[a-z]{3}\b`)

// Say adds a line.
func (t *Timeline) Say(actor, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, Entry{At: time.Since(t.start), Actor: actor, Text: text})
}

// Name returns text with all ids replaced by their names.
func (t *Timeline) Name(text string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name(time.Since(t.start)) // lines of this instant may still be missing
	if !t.known(text) {
		t.name(time.Since(t.start) + 1)
	}
	return t.rename(text)
}

func (t *Timeline) known(text string) bool {
	for _, id := range idPattern.FindAllString(text, -1) {
		if _, ok := t.names[canonical(id)]; !ok {
			return false
		}
	}
	return true
}

// name replaces the ids in all lines before the given time. Lines of the same instant are sorted,
// so that the result is deterministic.
func (t *Timeline) name(before time.Duration) {
	fresh := t.entries[t.named:]
	end := slices.IndexFunc(fresh, func(e Entry) bool { return e.At >= before })
	if end >= 0 {
		fresh = fresh[:end]
	}
	slices.SortStableFunc(fresh, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.sorted(), b.sorted()))
	})
	for n := range fresh {
		fresh[n].Actor, fresh[n].Text = t.rename(fresh[n].Actor), t.rename(fresh[n].Text)
	}
	t.named += len(fresh)
}

// rank orders effects after their causes.
func (e Entry) rank() int {
	switch {
	case e.Actor == "driver":
		return 0
	case e.Actor == "machine", e.Text == "gives up the lead":
		return 1
	case e.Actor == "operator":
		return 5
	case strings.HasPrefix(e.Text, "dies "):
		return 5
	case strings.HasPrefix(e.Text, "records "):
		return 3
	case strings.HasPrefix(e.Text, "asks the provider "):
		return 4
	default:
		return 2
	}
}

// sorted returns the sort key of lines that many actors may write at once; other lines keep
// their order.
func (e Entry) sorted() string {
	switch e.rank() {
	case 0, 5:
		return ""
	case 2:
		return e.Actor
	default:
		ids := strings.Join(idPattern.FindAllString(e.Text, -1), " ")
		return e.Actor + idPattern.ReplaceAllString(e.Text, "") + ids
	}
}

func (t *Timeline) rename(text string) string {
	return idPattern.ReplaceAllStringFunc(text, func(id string) string {
		id = canonical(id)
		if kind := id[:3]; kind == "run" || kind == "prb" || kind == "opr" {
			return kind
		}
		name, ok := t.names[id]
		if !ok {
			name = fmt.Sprintf("i%d", len(t.names)+1)
			t.names[id] = name
		}
		return name
	})
}

// Entries returns all lines, sorted by time.
func (t *Timeline) Entries() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name(time.Since(t.start) + 1)
	return slices.Clone(t.entries)
}

// String returns the whole timeline as text.
func (t *Timeline) String() string {
	var b strings.Builder
	for _, e := range t.Entries() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// canonical returns the id from either form.
func canonical(id string) string {
	if parsed, err := fleet.ParseStorageKey(id); err == nil {
		return string(parsed)
	}
	return id
}
