package shardtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// hands tracks manual changes of group objects. They must have no effect: only what a server
// wrote last counts. Guarded by book.mu.
type hands struct {
	book   *book
	bodies map[fleet.GroupKey][][]byte // written by servers, the latest last
	// left holds manually changed objects in their current state; empty if the object is
	// missing or unreadable.
	left map[fleet.GroupKey]config.GroupRecord
	// spoilt are the groups whose object can't be read: they stay as the leader knows them.
	spoilt map[fleet.GroupKey]bool
	// touched are the groups whose object was changed manually since a call about them was
	// last acknowledged.
	touched map[fleet.GroupKey]bool
	// restored says when a server replaced a record that said itself that it is missing. Listings
	// return that one for up to lag, and a leader goes by it until it lists the records again.
	restored map[fleet.GroupKey]time.Time
	lag      time.Duration
	// ready is the highest epoch whose leader is known to have read the groups.
	ready uint64
}

func newHands(b *book) *hands {
	return &hands{
		book: b, bodies: map[fleet.GroupKey][][]byte{}, left: map[fleet.GroupKey]config.GroupRecord{}, touched: map[fleet.GroupKey]bool{},
		restored: map[fleet.GroupKey]time.Time{}, spoilt: map[fleet.GroupKey]bool{},
	}
}

// wrote records a write of a server, and whether the record before it said that it is missing. The
// caller holds the lock.
func (h *hands) wrote(key fleet.GroupKey, body []byte, wasMissing bool) {
	h.bodies[key] = append(h.bodies[key], body)
	delete(h.left, key)
	delete(h.spoilt, key)
	if wasMissing {
		h.restored[key] = time.Now()
	}
}

// lagged records by how much listings of groups are late, from now on or once.
func (h *hands) lagged(by time.Duration) {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.lag = max(h.lag, by)
}

// mayMiss reports whether a leader may take the record of a group for missing: because of a manual
// change, or because of a late listing of a record that was missing. The caller holds the lock.
func (h *hands) mayMiss(key fleet.GroupKey) bool {
	at, was := h.restored[key]
	return h.touched[key] || was && time.Since(at) < h.lag+relist
}

// latest returns the last version of a group that a server wrote, or an earlier one; nil if
// there is none.
func (h *hands) latest(key fleet.GroupKey, before int) []byte {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	all := h.bodies[key]
	if before >= len(all) {
		return nil
	}
	return all[len(all)-1-before]
}

// handed records a manual change of an object; a nil body means that it was removed.
func (h *hands) handed(key fleet.GroupKey, body []byte) {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.touched[key] = true
	_, err := config.DecodeGroup(body)
	h.spoilt[key] = len(body) > 0 && err != nil
	if all := h.bodies[key]; len(all) > 0 && bytes.Equal(all[len(all)-1], body) {
		delete(h.left, key)
	} else {
		h.left[key], _ = config.DecodeGroup(body)
	}
	if h.book.holder.Epoch > h.ready {
		h.loosen()
	}
	h.book.rewant()
}

// loosen records that a term begins, or has just begun, while objects are changed manually: its
// leader may use them, so acknowledged sizes of these groups no longer hold. The caller holds
// the lock.
func (h *hands) loosen() {
	for key := range h.left {
		h.book.promises.sizes[key] = map[int]bool{anySize: true}
	}
}

// isReady records that a leader has read the groups.
func (h *hands) isReady(life string) {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.ready = max(h.ready, h.book.epochs[life])
}

// mistaken returns the manually changed groups, sorted.
func (h *hands) mistaken() []fleet.GroupKey {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	return slices.SortedFunc(maps.Keys(h.touched), fleet.GroupKey.Compare)
}

// held returns the manually changed groups, and those whose record says that it was missing, sorted.
func (h *hands) held() []fleet.GroupKey {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	held := maps.Clone(h.touched)
	for key, r := range h.book.groups {
		if r.Missing {
			held[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(held), fleet.GroupKey.Compare)
}

// credible returns the manually changed objects that a new leader can't tell from the latest: no
// instance was made by a later version. The caller holds the lock.
func (h *hands) credible() config.GroupRecords {
	out := config.GroupRecords{}
	for key, r := range h.left {
		later := func(i fleet.Instance) bool {
			return i.GroupKey() == key && i.Phase.Active() && i.GroupRevision > r.Revision
		}
		if r.Exists() && !slices.ContainsFunc(slices.Collect(maps.Values(h.book.records)), later) {
			out[key] = r
		}
	}
	return out
}

// meant returns the size to set again for a group after a manual change.
func (h *hands) meant(key fleet.GroupKey) int {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	if may := slices.Collect(maps.Keys(h.book.promises.sizes[key])); len(may) == 1 && may[0] >= absent {
		return may[0]
	}
	if size := h.book.groups[key].Size; size != nil {
		return *size
	}
	return 1
}

// byHand changes the object of a group manually; a nil body removes it.
func (r recorder) byHand(key fleet.GroupKey, body []byte) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name := groupObject(key); body == nil {
		err = r.Store.Delete(context.Background(), name)
	} else {
		_, err = r.Store.Put(context.Background(), name, body, object.Precondition{})
	}
	if err != nil {
		return fmt.Errorf("change the record of group %s by hand: %w", key, err)
	}
	r.book.hands.handed(key, body)
	return nil
}

const groupsPrefix = "groups/" + shardID + "/"

func groupObject(key fleet.GroupKey) string {
	return groupsPrefix + key.Tenant + "/" + key.Name + ".json"
}

// groupOf returns the group of an object.
func groupOf(object string) fleet.GroupKey {
	tenant, name, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(object, ".json"), groupsPrefix), "/")
	return fleet.GroupKey{Tenant: tenant, Name: name}
}

// mistakes draws manual changes of group records, in a third of the seeds, usually with a change
// of leaders before they are restored, if they are. It has its own random source, so that other
// draws don't change.
func (g *generator) mistakes(seed uint64, length time.Duration) {
	own := &generator{draw: rand.New(rand.NewPCG(seed, 0x4a2d)), servers: g.servers}
	if own.draw.IntN(3) > 0 {
		return
	}
	for at := own.upTo(length / 2); at < length; at += time.Minute + own.upTo(length/2) {
		group := own.choose("web", "db", "batch", "cron")
		if own.draw.IntN(3) > 0 {
			own.at(at-own.upTo(2*time.Minute), "group %s %d", group, own.draw.IntN(4))
		}
		what := own.choose("lost", "spoilt", fmt.Sprintf("old %d", 1+own.draw.IntN(4)))
		own.at(at, "record %s %s", group, what)
		until := at + own.mostly(time.Minute, 5*time.Minute)
		if own.draw.IntN(4) > 0 {
			own.at(at+own.upTo(until-at), "%s leader", own.choose("stop", "crash"))
		}
		if own.draw.IntN(2) == 0 {
			own.at(until, "record %s back", group)
		}
		for n := range g.servers {
			own.at(until, "start %c", 'a'+n)
		}
	}
	g.lines = append(g.lines, own.lines...)
}
