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

// Shard provides what instances should have. Its methods answer from memory.
type Shard interface {
	// Instance returns an instance's record.
	Instance(id fleet.InstanceID) (fleet.Instance, bool)
	// Group returns a group's desired state.
	Group(key fleet.GroupKey) (fleet.Group, bool)
	// Static returns the running static config.
	Static() *config.Shard
	// Values returns what renders the instance's files, with all that they may refer to, given the group for
	// that instance. Unlike the other methods it may block, until ctx ends.
	Values(ctx context.Context, i fleet.Instance, g fleet.Group) (config.Values, error)
}

// Reasons of problems.
const (
	ReasonFiles   = "FilesInvalid" // a file can't be rendered, or the agent rejects it
	ReasonStorage = "StorageError" // a secret or object can't be read, or the certificate log can't be written
)

// Config is what a Delivery needs. All fields without "optional" are required.
type Config struct {
	Shard   Shard
	CA      *pki.CA
	Secrets Secrets
	Storage Storage
	// Permit returns an error if a certificate of the instance must not contain a requested
	// name or address, because a server or another instance owns it. It must not block.
	Permit func(id fleet.InstanceID, r *pki.LeafRequest) error
	// Claim assigns public keys, by fingerprint, to an instance. If other living instances
	// have some of them, it returns those and assigns none. It must not block.
	Claim func(id fleet.InstanceID, fingerprints []string) (taken []string)
	// Bind durably records an instance's keys before certificates for them are sent. It writes
	// nothing if all of them are recorded.
	Bind func(ctx context.Context, id fleet.InstanceID, fingerprints []string) error
	// Log durably records issued certificates before they are sent.
	Log func(context.Context, ledger.CertificateBatch) error
	// Report receives problems, at most one a minute per group unless the problem changes.
	// Settled is called when an instance of a group with a problem got its files. Neither must
	// block.
	Report  func(fleet.Problem)
	Settled func(fleet.GroupKey)
	// Trace begins the span of a delivery, and returns it as a traceparent for the agent, empty if
	// there is none, and the function that ends it. It must not block. Optional.
	Trace  func(fleet.GroupKey, fleet.InstanceID) (traceparent string, end func(error))
	Now    func() time.Time
	Random io.Reader // for serial numbers; safe for concurrent use
}

func (c Config) check() error {
	if c.Shard == nil || c.CA == nil || c.Secrets == nil || c.Storage == nil || c.Permit == nil || c.Claim == nil || c.Bind == nil ||
		c.Log == nil || c.Report == nil || c.Settled == nil || c.Now == nil || c.Random == nil {
		return errors.New("new delivery: config is incomplete")
	}
	return nil
}

// Shard-wide limits.
const (
	maxLogWrites  = 64
	maxPushBytes  = 64 << 20 // of contents being sent, without small ones
	smallSet      = 16 << 10 // bytes: less is sent without waiting for others
	renderMaxLife = sourceLife
)

// Delivery delivers files during one term. It is safe for concurrent use; no method waits for
// an agent or for the store.
type Delivery struct {
	cfg     Config
	ctx     context.Context //nolint:containedctx // the term, in which the work of all sessions ends
	sources *sources
	making  *semaphore.Weighted // sets being rendered and signed
	logging *semaphore.Weighted
	pushing *semaphore.Weighted

	mu         sync.Mutex
	sessions   map[fleet.InstanceID]*session
	spent      map[fleet.InstanceID]allowance   // of instances without a session
	generation uint64                           // incremented for changes that no other version field shows
	told       map[fleet.GroupKey]fleet.Problem // without the instance's name
}

// New returns a delivery that works until ctx, the term, ends.
func New(ctx context.Context, cfg Config) (*Delivery, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Trace == nil {
		cfg.Trace = func(fleet.GroupKey, fleet.InstanceID) (string, func(error)) { return "", func(error) {} }
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

// Reported handles a health report. If nothing changed, it costs one comparison.
func (d *Delivery) Reported(id fleet.InstanceID, r FileReport) {
	tidy := r.tidy()
	var failed *FileStatus
	var group fleet.GroupKey
	d.with(id, func(s *session) {
		failed, group = s.hear(tidy, d.cfg.Now()), s.group
	})
	if failed != nil {
		d.report(group, id, ReasonFiles, unwritten(failed))
	}
}

func unwritten(f *FileStatus) string {
	return fmt.Sprintf("file %s: the agent can't write it: %.300q", f.Name, f.Error)
}

// Trouble returns why an instance does not have its files, and when that was last found; empty if it
// has them, or no reason is known.
func (d *Delivery) Trouble(id fleet.InstanceID) (why string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.failures > 0 && s.trouble != "" {
		return s.trouble, s.troubledAt
	}
	return "", time.Time{}
}

// Disconnected records that the health stream of an instance ended, and drops its report.
func (d *Delivery) Disconnected(id fleet.InstanceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil {
		s.report, s.inPlace = nil, nil
		s.over(errStreamEnded)
		d.tidyUp(id, s)
	}
}

// ConfigHash returns the config hash that an instance last reported in this term, or the empty
// string.
func (d *Delivery) ConfigHash(id fleet.InstanceID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.report != nil {
		return s.report.ConfigHash
	}
	return ""
}

// UpToDate reports whether the last report of an instance shows all of its files in their newest
// version. An instance that is not connected is not up to date. One whose group is undefined, or keeps
// the files that were sent, is.
func (d *Delivery) UpToDate(i fleet.Instance, g fleet.Group) bool {
	if !delivers(g) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[i.ID]
	return s != nil && s.want != nil && s.inPlace == s.want && s.files != nil && s.version == d.version(i, g)
}

// Changed rechecks the connected instances of the given groups at once, or of all groups if
// none is given. It is cheap for groups whose definition has not changed.
func (d *Delivery) Changed(keys ...fleet.GroupKey) {
	d.recheck(func(s *session) bool { return len(keys) == 0 || slices.Contains(keys, s.group) })
}

// Refreshed rechecks all connected instances at once, reading secrets and objects again.
func (d *Delivery) Refreshed() {
	d.sources.expire()
	d.refresh()
}

// refresh renders all sets again.
func (d *Delivery) refresh() {
	d.mu.Lock()
	d.generation++
	d.mu.Unlock()
	d.recheck(func(*session) bool { return true })
}

func (d *Delivery) recheck(which func(*session) bool) {
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

// with applies change to the session of an instance, creating one if needed, and starts the
// work that follows from it.
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

// group returns the desired state of an instance's group. If the group is undefined or its
// files are held, ok is false and its instances keep their files. A disabled group may still
// define files.
func (d *Delivery) group(i fleet.Instance) (fleet.Group, bool) {
	g, _ := d.cfg.Shard.Group(i.GroupKey())
	return g, delivers(g)
}

func delivers(g fleet.Group) bool { return g.Template != "" && !g.FilesHeld }

// version returns the inputs of a rendering; a set is rendered again when they change. d.mu is
// held.
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
