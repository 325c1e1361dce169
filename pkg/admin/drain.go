package admin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
)

// DrainConfig says how instances are drained.
type DrainConfig struct {
	Only []string // instance ids; empty: whatever drains
	Once bool     // return when all that drain now are done, rather than go on for ever
	// Do takes the work off one instance. After an error it is called again, after
	// a wait that grows, for as long as the instance drains; its context ends when
	// that is over.
	Do     func(ctx context.Context, i Instance) error
	Report func(DrainStep) // is told of each step, one at a time; required
}

// DrainStep is one step of one drain.
type DrainStep struct {
	Instance Instance
	Step     string // started | failed | acknowledged
	Err      error  // of failed
}

// The steps of a drain.
const (
	DrainStarted      = "started"
	DrainFailed       = "failed"
	DrainAcknowledged = "acknowledged"
)

// maxDrains bounds the drains under way.
const maxDrains = 8

// Drain follows the draining instances of the shards, takes the work off each
// with cfg.Do, and acknowledges it, so that the instance goes before its
// timeout. It returns when ctx ends, or with Once when nothing is left to do.
func (c *Client) Drain(ctx context.Context, shards []client.Shard, cfg DrainConfig) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := &drainer{
		client: c, shards: shards, cfg: cfg, done: stop, slots: make(chan struct{}, maxDrains),
		waiting: map[string]bool{}, under: map[string]context.CancelFunc{},
	}
	for _, s := range shards {
		d.waiting[s.ID] = true
	}
	err := c.watch(ctx, shards, []string{client.WatchInstances}, func(e client.Event) error { d.take(ctx, e); return nil })
	stop()
	d.workers.Wait()
	return errors.Join(err, d.final)
}

// drainer is a Drain under way.
type drainer struct {
	client  *Client
	shards  []client.Shard
	cfg     DrainConfig
	done    context.CancelFunc
	slots   chan struct{}
	workers sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]bool               // shards whose snapshot is not whole
	under   map[string]context.CancelFunc // ends a drain under way, by instance id
	final   error                         // why no repetition can help

	steps sync.Mutex
}

func (d *drainer) take(ctx context.Context, e client.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Kind {
	case client.Synced:
		delete(d.waiting, e.Shard)
		d.finish()
	case client.Gone:
		if end, drains := d.under[e.Key]; drains {
			end()
		}
	case client.Changed:
		d.follow(ctx, instance(e.Shard, e.Instance))
	case client.Lost:
	}
}

// follow begins the drain of an instance, or ends it when it is over. d.mu is
// held.
func (d *drainer) follow(ctx context.Context, i Instance) {
	if len(d.cfg.Only) > 0 && !slices.Contains(d.cfg.Only, i.ID) {
		return
	}
	drains := i.Phase == "draining" && (i.Drain == nil || i.Drain.AckedAt == nil)
	end, ours := d.under[i.ID]
	switch {
	case !drains && ours:
		end()
	case drains && !ours:
		lasts, cancel := context.WithCancel(ctx)
		d.under[i.ID] = cancel
		d.workers.Go(func() {
			d.drain(ctx, lasts, i)
			cancel()
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.under, i.ID)
			d.finish()
		})
	}
}

// finish ends it all when nothing is left to do. d.mu is held.
func (d *drainer) finish() {
	if d.cfg.Once && len(d.waiting) == 0 && len(d.under) == 0 {
		d.done()
	}
}

// drain takes the work off one instance and acknowledges it, for as long as the
// context drains says that the instance drains.
func (d *drainer) drain(ctx, drains context.Context, i Instance) {
	backoff := rpc.Backoff()
	backoff.First = 8 * time.Second // the command of a drain is no cheap call
	for failures := 1; ; failures++ {
		select {
		case d.slots <- struct{}{}:
		case <-drains.Done():
			return
		}
		d.report(DrainStep{Instance: i, Step: DrainStarted})
		err := d.attempt(ctx, drains, i)
		<-d.slots
		if drains.Err() != nil && err != nil {
			return
		}
		if err == nil {
			d.report(DrainStep{Instance: i, Step: DrainAcknowledged})
			return
		}
		d.report(DrainStep{Instance: i, Step: DrainFailed, Err: err})
		if status.Code(err) == codes.NotFound {
			return // it is gone
		}
		if errors.As(err, new(*client.ShardError)) && !client.Transient(err) {
			d.giveUp(err)
			return
		}
		if retry.Wait(drains, backoff.Draw(failures, d.client.cfg.Random)) != nil {
			return
		}
	}
}

// giveUp ends it all: a shard has refused an acknowledgement for good.
func (d *drainer) giveUp(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.final = err
	d.done()
}

// attempt acknowledges under ctx: the event that the drain is over may well come before
// the answer that ended it.
func (d *drainer) attempt(ctx, drains context.Context, i Instance) error {
	if err := d.cfg.Do(drains, i); err != nil {
		return err
	}
	shard, err := client.Select(d.shards, i.Shard)
	if err != nil {
		return err
	}
	_, err = d.client.AcknowledgeDrained(ctx, shard, i.ID)
	return err
}

func (d *drainer) report(s DrainStep) {
	d.steps.Lock()
	defer d.steps.Unlock()
	d.cfg.Report(s)
}
