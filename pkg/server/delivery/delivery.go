package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// Shard is what instances are to have. Its methods answer from memory.
type Shard interface {
	// Instance returns an instance's record.
	Instance(id fleet.InstanceID) (fleet.Instance, bool)
	// Group returns a group as it is desired now.
	Group(key fleet.GroupKey) (fleet.Group, bool)
	// Static returns the static config that runs.
	Static() *config.Shard
	// Facts are what the files of an instance may name, of the group as it is for
	// that instance. It alone may take its time, until ctx ends.
	Facts(ctx context.Context, i fleet.Instance, g fleet.Group) (config.Facts, error)
}

// The reasons of problems.
const (
	ReasonFiles   = "FilesInvalid" // a file can't be made, or the agent does not take it
	ReasonStorage = "StorageError" // a secret or an object can't be read, or the log not written
)

// Config is what a Delivery needs. All fields are required.
type Config struct {
	Shard   Shard
	CA      *pki.CA
	Secrets Secrets
	Storage Storage
	// Claim makes public keys, by fingerprint, an instance's, unless other living
	// instances have some of them: it returns those, and claims none. It must not block.
	Claim func(id fleet.InstanceID, fingerprints []string) (taken []string)
	// Bind makes durable that an instance has keys, before certificates for them are
	// sent. Keys that it is known to have are no write.
	Bind func(ctx context.Context, id fleet.InstanceID, fingerprints []string) error
	// Log makes durable what was issued, before it is sent.
	Log func(context.Context, ledger.CertificateBatch) error
	// Report is told of problems, of one group not more than once a minute unless
	// another one has come up; Settled that an instance of a group that had one got
	// its files. Neither must block.
	Report  func(fleet.Problem)
	Settled func(fleet.GroupKey)
	Now     func() time.Time
	Random  io.Reader // for serial numbers; safe for concurrent use
}

func (c Config) check() error {
	if c.Shard == nil || c.CA == nil || c.Secrets == nil || c.Storage == nil || c.Claim == nil || c.Bind == nil || c.Log == nil ||
		c.Report == nil || c.Settled == nil || c.Now == nil || c.Random == nil {
		return errors.New("make a delivery: a field of its config is missing")
	}
	return nil
}

// The bounds of what happens at one time in the whole shard.
const (
	maxLogWrites  = 64
	maxPushBytes  = 64 << 20 // of contents being sent, small sets aside
	smallSet      = 16 << 10 // bytes: a set that need not wait for others
	renderMaxLife = sourceLife
)

// Delivery delivers during one term of leadership. It is safe for concurrent
// use; no method waits for an agent or for the store.
type Delivery struct {
	cfg     Config
	ctx     context.Context //nolint:containedctx // the term, in which the work of all sessions ends
	sources *sources
	making  *semaphore.Weighted // sets being rendered and signed
	logging *semaphore.Weighted
	pushing *semaphore.Weighted

	mu         sync.Mutex
	sessions   map[fleet.InstanceID]*session
	spent      map[fleet.InstanceID]allowance // of instances without a session
	generation uint64                         // goes up with what no version tells
	told       map[fleet.GroupKey]fleet.Problem
}

// New returns a delivery that works until ctx, the term, ends.
func New(ctx context.Context, cfg Config) (*Delivery, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Delivery{
		cfg: cfg, ctx: ctx,
		making:   semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))),
		logging:  semaphore.NewWeighted(maxLogWrites),
		pushing:  semaphore.NewWeighted(maxPushBytes),
		sessions: map[fleet.InstanceID]*session{}, spent: map[fleet.InstanceID]allowance{}, told: map[fleet.GroupKey]fleet.Problem{},
	}
	d.sources = &sources{secrets: cfg.Secrets, storage: cfg.Storage, now: cfg.Now, changed: d.refresh, known: map[source]*reading{}}
	return d, nil
}

// Reported takes a health report. What is in order costs a comparison.
func (d *Delivery) Reported(id fleet.InstanceID, r FileReport) {
	tidy := r.tidy()
	var failed *FileStatus
	var group fleet.GroupKey
	d.with(id, func(s *session) {
		failed, group = s.hear(tidy, d.cfg.Now()), s.group
	})
	if failed != nil {
		d.tell(group, ReasonFiles, fmt.Sprintf("file %s: the agent can't take it over: %.300q", failed.Name, failed.Error))
	}
}

// Disconnected tells that the health stream of an instance ended, so that nothing
// is known any more of what it has.
func (d *Delivery) Disconnected(id fleet.InstanceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil {
		s.report, s.push = nil, nil
		d.tidyUp(id, s)
	}
}

// ConfigHash is what an instance last reported in this term; empty: nothing.
func (d *Delivery) ConfigHash(id fleet.InstanceID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.report != nil {
		return s.report.ConfigHash
	}
	return ""
}

// Changed has the connected instances of the given groups judged again, at once;
// none given: of all groups. Only groups whose definition is another one cost
// more than a look.
func (d *Delivery) Changed(keys ...fleet.GroupKey) {
	d.lookAgain(func(s *session) bool { return len(keys) == 0 || slices.Contains(keys, s.group) })
}

// Refreshed has all connected instances judged again, at once, by secrets and
// storage that are read anew.
func (d *Delivery) Refreshed() {
	d.sources.expire()
	d.refresh()
}

// refresh has all sets rendered anew.
func (d *Delivery) refresh() {
	d.mu.Lock()
	d.generation++
	d.mu.Unlock()
	d.lookAgain(func(*session) bool { return true })
}

func (d *Delivery) lookAgain(which func(*session) bool) {
	d.mu.Lock()
	var ids []fleet.InstanceID
	for id, s := range d.sessions {
		if which(s) {
			ids = append(ids, id)
		}
	}
	d.mu.Unlock()
	for _, id := range ids {
		d.with(id, func(*session) {})
	}
}

// with changes the session of an instance, making one if need be, and sees to it
// that what follows from the change is done.
func (d *Delivery) with(id fleet.InstanceID, change func(*session)) {
	i, known := d.cfg.Shard.Instance(id)
	g, ok := d.group(i)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[id]
	if s == nil {
		s = &session{group: i.GroupKey(), allowance: d.resume(id)}
		d.sessions[id] = s
	}
	if known {
		s.group = i.GroupKey()
	}
	change(s)
	if !known || !ok || d.ctx.Err() != nil || s.calm(d.version(i, g), d.caEnd(), d.cfg.Now()) {
		d.tidyUp(id, s)
		return
	}
	if s.again = true; !s.working {
		s.working = true
		go d.work(id, s)
	}
}

// group returns what an instance's group wants for all of its instances. A group
// that is not defined any more, or not properly, says nothing of files: then its
// instances keep what they have.
func (d *Delivery) group(i fleet.Instance) (fleet.Group, bool) {
	g, _ := d.cfg.Shard.Group(i.GroupKey())
	return g, g.Template != "" && g.Disabled == ""
}

// version tells when a set must be rendered anew. The generation stands for what
// is in nothing else. d.mu is held.
func (d *Delivery) version(i fleet.Instance, g fleet.Group) version {
	return version{hashes: g.Hashes, rev: i.Rev, generation: d.generation}
}

func (d *Delivery) caEnd() time.Time { return d.cfg.CA.Certificate().NotAfter }

// tidyUp drops a session that holds nothing. d.mu is held.
func (d *Delivery) tidyUp(id fleet.InstanceID, s *session) {
	if s.keys != nil || s.files != nil || s.report != nil || s.working || d.sessions[id] != s {
		return
	}
	delete(d.sessions, id)
	if !s.allowance.full(d.cfg.Now()) {
		d.spent[id] = s.allowance
	}
}

func (d *Delivery) resume(id fleet.InstanceID) allowance {
	a, ok := d.spent[id]
	delete(d.spent, id)
	if !ok {
		a = allowance{left: allowanceMost}
	}
	return a
}
