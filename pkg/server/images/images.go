// Package images looks up the IDs of machine images by their properties, and caches them for
// one term.
//
// An image is looked up when the first machine needs it, once for all concurrent callers, and
// again at every refresh. A found ID stays valid until a newer one is found: a provider error
// or a withdrawn image does not affect callers while there is an ID. Until an ID is found the
// fallback is used, if there is one. An image whose definition changes starts over.
package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Image is an image as defined in the config. Without filters it is only its fallback, and is
// never looked up.
type Image struct {
	Query    provider.ImageQuery
	Fallback string // used until an ID is found; empty: none
}

// Config is what a Cache needs. All fields are required but for Resolver.
type Config struct {
	Resolver provider.ImageResolver // nil: the provider can't look images up
	Interval func() time.Duration   // from a successful lookup to the next one
	Timeout  func() time.Duration   // of one lookup
	// Report receives every failed lookup and what is used instead. It must not block.
	Report func(name string, err error)
	Logger *slog.Logger
}

// Cache keeps the ids of images. It is safe for concurrent use.
type Cache struct {
	cfg Config

	mu      sync.Mutex
	entries map[string]*entry
	over    bool           // Run has ended: no more lookups
	ended   chan struct{}  // closed when over is set
	flights sync.WaitGroup // lookups in progress
}

// entry is the state of one image. Guarded by Cache.mu.
type entry struct {
	image  Image
	id     string        // last found; empty: none
	due    time.Time     // time of the next lookup; zero: at once
	err    error         // of the last lookup
	flight chan struct{} // closed when the lookup in progress ends; nil: none
}

const (
	// pause is how long after a failed lookup callers get its error instead of a new lookup.
	pause = 15 * time.Second
	// retry is when a refresh repeats a failed lookup, if that is sooner than the interval.
	// Including step it is well below five minutes, after which a shard-wide problem that is
	// not reported again counts as over.
	retry = 3 * time.Minute
	// step is the longest pause between refreshes.
	step = time.Minute
)

// ErrUnsupported means that the provider can't look up images.
var ErrUnsupported = fmt.Errorf("the provider can't look up images: %w", provider.ErrUnsupported)

// New returns an empty cache.
func New(cfg Config) *Cache {
	return &Cache{cfg: cfg, entries: map[string]*entry{}, ended: make(chan struct{})}
}

// errOver is the error of lookups after Run has ended.
var errOver = errors.New("the leader's term has ended")

// Resolve returns the IDs of images by name, looking up unknown ones. The error names each
// image that has neither an ID nor a fallback.
func (c *Cache) Resolve(ctx context.Context, wanted map[string]Image) (map[string]string, error) {
	found := make(map[string]string, len(wanted))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		id, err := c.resolve(ctx, name, wanted[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("look up images.%s: %w", name, err))
			continue
		}
		found[name] = id
	}
	return found, errors.Join(errs...)
}

func (c *Cache) resolve(ctx context.Context, name string, image Image) (string, error) {
	for {
		c.mu.Lock()
		e := c.entry(name, image)
		if id := e.usable(); id != "" || (e.err != nil && time.Now().Before(e.due)) {
			err := e.err
			c.mu.Unlock()
			if id != "" {
				return id, nil
			}
			return "", err
		}
		if c.over {
			c.mu.Unlock()
			return "", errOver
		}
		flight := c.startLookup(ctx, name, e)
		c.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// entry returns the entry of an image with its current definition. c.mu is held.
func (c *Cache) entry(name string, image Image) *entry {
	e := c.entries[name]
	if e == nil || !reflect.DeepEqual(e.image, image) {
		e = &entry{image: image}
		c.entries[name] = e
	}
	return e
}

// usable returns the ID to use without a lookup; empty: there is none.
func (e *entry) usable() string {
	if e.id == "" && (e.err != nil || len(e.image.Query.Filters) == 0) {
		return e.image.Fallback
	}
	return e.id
}

// startLookup starts a lookup unless one is in progress. It continues if its caller gives up,
// since others may wait for it, but ends with Run. c.mu is held.
func (c *Cache) startLookup(ctx context.Context, name string, e *entry) <-chan struct{} {
	if e.flight != nil {
		return e.flight
	}
	flight := make(chan struct{})
	e.flight = flight
	c.flights.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout())
		defer cancel()
		landed := make(chan struct{})
		defer close(landed)
		c.flights.Go(func() {
			select {
			case <-c.ended:
				cancel()
			case <-landed:
			}
		})
		id, err := c.lookUp(ctx, e.image.Query)
		c.mu.Lock()
		report := c.landed(name, e, id, err)
		if c.over {
			report = nil
		}
		c.mu.Unlock()
		if report != nil {
			c.cfg.Report(name, report)
		}
		close(flight) // after the report, so that waiting callers find it
	})
	return flight
}

// end stops the lookups in progress and waits for them.
func (c *Cache) end() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	close(c.ended)
	c.flights.Wait()
}

func (c *Cache) lookUp(ctx context.Context, q provider.ImageQuery) (string, error) {
	if c.cfg.Resolver == nil {
		return "", ErrUnsupported
	}
	id, err := c.cfg.Resolver.ResolveImage(ctx, q)
	if err == nil && id == "" {
		err = fmt.Errorf("%w: the provider returned no id", provider.ErrNotFound)
	}
	return id, err
}

// landed stores the result of a lookup, and returns the error to report. c.mu is held.
func (c *Cache) landed(name string, e *entry, id string, err error) error {
	now := time.Now()
	e.flight, e.err = nil, err
	if err == nil {
		if id != e.id {
			c.cfg.Logger.Info("image found", slog.String("image", name), slog.String("id", id), slog.String("before", e.id))
		}
		e.id, e.due = id, now.Add(c.cfg.Interval())
		return nil
	}
	use := e.usable()
	if use == "" {
		e.due = now.Add(pause)
		return fmt.Errorf("look up images.%s: no image known yet, so groups that use it get no instances: %w", name, err)
	}
	e.due = now.Add(min(retry, c.cfg.Interval()))
	return fmt.Errorf("look up images.%s: still using %s: %w", name, use, err)
}

// Run keeps the used images up to date until ctx ends: unknown ones are looked up within a
// minute, known ones at every interval, and unused ones are dropped. It is called once; no
// lookup runs after it returns.
func (c *Cache) Run(ctx context.Context, used func() map[string]Image) {
	defer c.end()
	for {
		c.refresh(ctx, used())
		next := time.NewTimer(min(step, c.cfg.Interval()))
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

// refresh looks up the images that are due, one after the other.
func (c *Cache) refresh(ctx context.Context, used map[string]Image) {
	c.mu.Lock()
	maps.DeleteFunc(c.entries, func(name string, e *entry) bool {
		_, ok := used[name]
		return !ok && e.flight == nil
	})
	c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(used)) {
		c.mu.Lock()
		e := c.entry(name, used[name])
		var flight <-chan struct{}
		if len(e.image.Query.Filters) > 0 && !time.Now().Before(e.due) {
			flight = c.startLookup(ctx, name, e)
		}
		c.mu.Unlock()
		if flight == nil {
			continue
		}
		select {
		case <-flight:
		case <-ctx.Done():
			return
		}
	}
}
