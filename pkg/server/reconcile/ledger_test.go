package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

var (
	errNotLeader = errors.New("not the leader")
	errStoreDown = errors.New("store unreachable")
)

// bucket is the store: what is in it survives every term.
type bucket struct {
	mu        sync.Mutex
	records   map[fleet.InstanceID]fleet.Instance
	epoch     uint64 // of the term that may write
	lists     int
	malformed []fleet.Malformed
	writes    int

	unreadable map[fleet.InstanceID]bool // by their keys

	latency time.Duration
	linger  time.Duration // of a Relist that has changed the memory already
	down    bool
	fail    func(op string, id fleet.InstanceID) (applied bool, err error) // nil: nothing fails
	onWrite func(op string, i fleet.Instance)                              // after a write has landed
}

func newBucket() *bucket { return &bucket{records: map[fleet.InstanceID]fleet.Instance{}} }

// put lands a write, or fails it before or after.
func (b *bucket) put(
	ctx context.Context, op string, epoch uint64, id fleet.InstanceID, land func() (fleet.Instance, error),
) (fleet.Instance, error) {
	if err := wait(ctx, b.latency); err != nil {
		return fleet.Instance{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes++
	applied, failure := true, error(nil)
	if b.fail != nil {
		applied, failure = b.fail(op, id)
		applied = applied || failure == nil
	}
	switch {
	case b.down:
		return fleet.Instance{}, errStoreDown
	case epoch != b.epoch:
		return fleet.Instance{}, errNotLeader
	case !applied:
		return fleet.Instance{}, failure
	}
	i, err := land()
	if err == nil && b.onWrite != nil {
		b.onWrite(op, i)
	}
	if err == nil {
		err = failure
	}
	return i, err
}

func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// take removes a record externally.
func (b *bucket) take(ids ...fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		delete(b.records, id)
	}
}

// place writes a record externally.
func (b *bucket) place(records ...fleet.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		b.records[r.ID] = r.Clone()
	}
}

// written counts the writes so far.
func (b *bucket) written() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

// listed counts the listings so far.
func (b *bucket) listed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lists
}

func (b *bucket) get(id fleet.InstanceID) (fleet.Instance, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[id]
	return r.Clone(), ok
}

func (b *bucket) all() []fleet.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []fleet.Instance
	for _, r := range b.records {
		out = append(out, r.Clone())
	}
	slices.SortFunc(out, func(x, y fleet.Instance) int { return strings.Compare(string(x.ID), string(y.ID)) })
	return out
}

// ledger is one term's memory of the bucket.
type ledger struct {
	b     *bucket
	epoch uint64

	mu       sync.Mutex
	records  map[fleet.InstanceID]fleet.Instance
	unread   map[fleet.InstanceID]bool
	vanished int
	locks    map[fleet.InstanceID]chan struct{} // not mutexes, whose waiters stop the clock of a bubble
}

// lead begins a term: every earlier one can write no more.
func (b *bucket) lead() *ledger {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	l := &ledger{
		b: b, epoch: b.epoch, records: map[fleet.InstanceID]fleet.Instance{}, unread: map[fleet.InstanceID]bool{},
		locks: map[fleet.InstanceID]chan struct{}{},
	}
	for id, r := range b.records {
		l.records[id], l.unread[id] = r.Clone(), true
	}
	return l
}

// Epoch and Check make the ledger its term's fence too.
func (l *ledger) Epoch() uint64 { return l.epoch }

func (l *ledger) Check(context.Context) error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	switch {
	case l.epoch != l.b.epoch:
		return errNotLeader
	case l.b.down:
		return errStoreDown
	default:
		return nil
	}
}

func (l *ledger) Instances() []fleet.Instance {
	return l.where(func(fleet.Instance) bool { return true })
}

func (l *ledger) Group(key fleet.GroupKey) []fleet.Instance {
	return l.where(func(i fleet.Instance) bool { return i.GroupKey() == key })
}

func (l *ledger) Members(key fleet.GroupKey, room []*fleet.Instance) []*fleet.Instance {
	for _, i := range l.Group(key) {
		room = append(room, &i)
	}
	return room
}

func (l *ledger) where(ok func(fleet.Instance) bool) []fleet.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []fleet.Instance
	for _, r := range l.records {
		if ok(r) {
			out = append(out, r.Clone())
		}
	}
	return out
}

func (l *ledger) Get(id fleet.InstanceID) (fleet.Instance, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[id]
	return r.Clone(), ok
}

func (l *ledger) lock(id fleet.InstanceID) func() {
	l.mu.Lock()
	m := l.locks[id]
	if m == nil {
		m = make(chan struct{}, 1)
		l.locks[id] = m
	}
	l.mu.Unlock()
	m <- struct{}{}
	return func() { <-m }
}

func (l *ledger) remember(i fleet.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[i.ID] = i.Clone()
	delete(l.unread, i.ID)
}

func (l *ledger) Create(ctx context.Context, i fleet.Instance) (fleet.Instance, error) {
	defer l.lock(i.ID)()
	i = i.Clone()
	i.Epoch, i.Rev, i.Writer = l.epoch, 1, fmt.Sprintf("server-%d", l.epoch)
	made, err := l.b.put(ctx, "create", l.epoch, i.ID, func() (fleet.Instance, error) {
		if old, ok := l.b.records[i.ID]; ok && (old.Writer != i.Writer || old.Rev != 1) {
			return fleet.Instance{}, errors.New("conflict")
		}
		l.b.records[i.ID] = i.Clone()
		return i, nil
	})
	if err != nil {
		return fleet.Instance{}, err
	}
	l.remember(made)
	return made, nil
}

func (l *ledger) Update(ctx context.Context, id fleet.InstanceID, change func(*fleet.Instance) error) (fleet.Instance, error) {
	defer l.lock(id)()
	old, ok := l.Get(id)
	if !ok {
		return fleet.Instance{}, errors.New("no such record")
	}
	next := old.Clone()
	if err := change(&next); err != nil {
		return fleet.Instance{}, err
	}
	if next.Phase != old.Phase && !old.Phase.CanMove(next.Phase) {
		return fleet.Instance{}, fmt.Errorf("illegal move from %s to %s", old.Phase, next.Phase)
	}
	next.Epoch, next.Rev, next.Writer = l.epoch, old.Rev+1, fmt.Sprintf("server-%d", l.epoch)
	var conflicting *fleet.Instance
	made, err := l.b.put(ctx, "update-"+string(next.Phase), l.epoch, id, func() (fleet.Instance, error) {
		there, ok := l.b.records[id]
		switch {
		case ok && there.Rev == next.Rev && reflect.DeepEqual(there, next):
			return next, nil // this very write, whose reply was lost
		case ok && there.Rev != old.Rev:
			conflicting = &there
			fallthrough
		case !ok:
			return fleet.Instance{}, errors.New("conflict")
		}
		l.b.records[id] = next.Clone()
		return next, nil
	})
	if conflicting != nil {
		l.remember(*conflicting) // as it was read back
	}
	if err != nil {
		return fleet.Instance{}, err
	}
	l.remember(made)
	return made, nil
}

func (l *ledger) Remove(ctx context.Context, id fleet.InstanceID) error {
	defer l.lock(id)()
	_, err := l.b.put(ctx, "remove", l.epoch, id, func() (fleet.Instance, error) {
		delete(l.b.records, id)
		return fleet.Instance{ID: id}, nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.records, id)
	return nil
}

// Unread implements reconcile.Ledger: a term knows from a listing only what was stored before it.
func (l *ledger) Unread(key fleet.GroupKey) (ids []fleet.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.records {
		if l.unread[id] && r.GroupKey() == key && !r.OnDemand && r.Phase != fleet.Deleted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Confirm implements reconcile.Ledger.
func (l *ledger) Confirm(ctx context.Context, _ string, id fleet.InstanceID) error {
	defer l.lock(id)()
	if err := wait(ctx, l.b.latency); err != nil {
		return err
	}
	l.b.mu.Lock()
	r, ok := l.b.records[id]
	down := l.b.down || l.b.unreadable[id]
	l.b.mu.Unlock()
	switch {
	case down:
		return errStoreDown
	case !ok:
		return errors.New("no such record")
	}
	l.remember(r)
	return nil
}

func (l *ledger) Reread(ctx context.Context, tenant string, id fleet.InstanceID) error {
	l.mu.Lock()
	delete(l.records, id)
	l.mu.Unlock()
	_, err := l.Recall(ctx, tenant, id)
	return err
}

func (l *ledger) Recall(ctx context.Context, _ string, id fleet.InstanceID) (bool, error) {
	if err := wait(ctx, l.b.latency); err != nil {
		return false, err
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.down {
		return false, errStoreDown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.b.records[id]
	if _, known := l.records[id]; ok && !known {
		l.records[id] = r.Clone()
	}
	return ok, nil
}

func (l *ledger) Vanished() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.vanished
}

func (l *ledger) Malformed() []fleet.Malformed {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return slices.Clone(l.b.malformed)
}

// spoil makes records malformed.
func (b *bucket) spoil(ids ...fleet.InstanceID) {
	b.take(ids...)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.malformed = append(b.malformed, fleet.Malformed{Key: "instance/one/" + string(id), ID: id, Err: errors.New("spoiled")})
	}
}

// mend restores a malformed record, also in a ledger as if it had listed it.
func (b *bucket) mend(in *ledger, r fleet.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records[r.ID] = r.Clone()
	b.malformed = slices.DeleteFunc(b.malformed, func(m fleet.Malformed) bool { return m.ID == r.ID })
	in.mu.Lock()
	defer in.mu.Unlock()
	in.records[r.ID] = r.Clone()
}

func (l *ledger) Relist(ctx context.Context) (appeared, vanished []fleet.InstanceID, err error) {
	l.mu.Lock()
	l.vanished = 0
	l.mu.Unlock()
	if err := wait(ctx, l.b.latency); err != nil {
		return nil, nil, err
	}
	defer func() { _ = wait(ctx, l.b.linger) }()
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.b.lists++
	if l.b.down {
		return nil, nil, errStoreDown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.b.records {
		if _, ok := l.records[id]; !ok {
			appeared = append(appeared, id)
			l.records[id] = r.Clone()
		}
	}
	for id, r := range l.records {
		if _, ok := l.b.records[id]; !ok {
			vanished = append(vanished, id)
			if r.Phase != fleet.Deleted {
				l.vanished++
			}
			delete(l.records, id)
		}
	}
	return appeared, vanished, nil
}
