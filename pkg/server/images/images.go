// Package images finds the ids of machine images by their properties, and keeps
// them in memory for one term of leadership.
//
// An image is looked up when the first machine needs it, once for all who need it
// at that moment, and again at every refresh. What was found stays good until
// something newer is found: a provider that does not answer, or an image that was
// withdrawn, stops nobody who has an id. Before anything was found the fallback
// is used, if there is one. An image whose definition changes starts afresh.
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

// Image is an image as the config defines it. One without filters is its
// fallback, and is never looked up.
type Image struct {
	Query    provider.ImageQuery
	Fallback string // used before anything was found; empty: none
}

// Config is what a Cache needs. All fields are required but for Resolver.
type Config struct {
	Resolver provider.ImageResolver // nil: the provider can't look images up
	Interval func() time.Duration   // from a lookup that succeeded to the next, at a refresh
	Timeout  func() time.Duration   // of one lookup
	// Report is told of every failed lookup, with what is used instead. It must
	// not block.
	Report func(name string, err error)
	Logger *slog.Logger
}

// Cache keeps the ids of images. It is safe for concurrent use.
type Cache struct {
	cfg Config

	mu      sync.Mutex
	entries map[string]*entry
	over    bool           // Run has ended: nothing is looked up any more
	ended   chan struct{}  // closed then
	flights sync.WaitGroup // the lookups under way
}

// entry is what is known of one image. Cache.mu guards it.
type entry struct {
	image  Image
	id     string        // last found; empty: nothing yet
	due    time.Time     // when it is to be looked up next; zero: at once
	err    error         // of the last lookup
	flight chan struct{} // closed when the lookup under way is over; nil: there is none
}

const (
	// pause is how long a failed lookup is not repeated for those who ask.
	pause = 15 * time.Second
	// retry is when a refresh repeats a failed lookup, if that is sooner than the
	// interval. With the step to the refresh it is well below five minutes, after
	// which a problem of the whole shard that was not reported again is over.
	retry = 3 * time.Minute
	// step is how often a refresh looks for images that nobody has asked for yet.
	step = time.Minute
)

// ErrUnsupported says that the provider does not look images up.
var ErrUnsupported = fmt.Errorf("the provider can't look images up: %w", provider.ErrUnsupported)

// New returns an empty cache.
func New(cfg Config) *Cache {
	return &Cache{cfg: cfg, entries: map[string]*entry{}, ended: make(chan struct{})}
}

// errOver is what a lookup meets after Run.
var errOver = errors.New("the term is over")

// Resolve returns the ids of images by name, looking up those that are not known.
// The error names each one that has no id, not even a fallback.
func (c *Cache) Resolve(ctx context.Context, wanted map[string]Image) (map[string]string, error) {
	found := make(map[string]string, len(wanted))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		id, err := c.resolve(ctx, name, wanted[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("find images.%s: %w", name, err))
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
		flight := c.begin(ctx, name, e)
		c.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// entry returns what is kept of an image as it is defined now. c.mu is held.
func (c *Cache) entry(name string, image Image) *entry {
	e := c.entries[name]
	if e == nil || !reflect.DeepEqual(e.image, image) {
		e = &entry{image: image}
		c.entries[name] = e
	}
	return e
}

// usable is the id to use without asking anybody; empty: there is none.
func (e *entry) usable() string {
	if e.id == "" && (e.err != nil || len(e.image.Query.Filters) == 0) {
		return e.image.Fallback
	}
	return e.id
}

// begin looks an image up, unless somebody does already. The lookup outlives the
// caller who gives up, since others may wait for it, but not Run. c.mu is held.
func (c *Cache) begin(ctx context.Context, name string, e *entry) <-chan struct{} {
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
		close(flight) // who waited finds it reported
	})
	return flight
}

// end stops the lookups under way and waits for them.
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
		err = fmt.Errorf("%w: the provider answered without an id", provider.ErrNotFound)
	}
	return id, err
}

// landed takes over the answer to a lookup, and returns what there is to report.
// c.mu is held.
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
		return fmt.Errorf("find images.%s, without which groups that use it get no instances: %w", name, err)
	}
	e.due = now.Add(min(retry, c.cfg.Interval()))
	return fmt.Errorf("find images.%s, for which %s is used meanwhile: %w", name, use, err)
}

// Run keeps the images that are used up to date until ctx ends: what is not known
// is looked up within a minute, what is known at every interval, and what nobody
// uses any more is forgotten. It is called once, and when it returns nothing is
// looked up any more, for nobody.
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

// refresh looks up what is due, one image after the other.
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
			flight = c.begin(ctx, name, e)
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
