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

// DrainConfig configures Drain.
type DrainConfig struct {
	Only []string // instance IDs; empty: all
	Once bool     // return when the instances draining now are done
	// Do drains one instance. On an error it is retried with back-off while the instance
	// drains. Its context ends when the instance no longer drains.
	Do     func(ctx context.Context, i Instance) error
	Report func(DrainStep) // called for each step, never concurrently; required
}

// DrainStep is one step of one drain.
type DrainStep struct {
	Instance Instance
	Step     string // started | failed | acknowledged
	Err      error  // of failed
}

// Steps of a drain.
const (
	DrainStarted      = "started"
	DrainFailed       = "failed"
	DrainAcknowledged = "acknowledged"
)

// maxDrains bounds the number of concurrent drains.
const maxDrains = 8

// Drain watches the shards for draining instances, drains each with cfg.Do and acknowledges it,
// so that the instance is deleted before its drain timeout. It returns when ctx ends or, with
// Once, when nothing is left to drain.
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

// drainer is the state of a Drain.
type drainer struct {
	client  *Client
	shards  []client.Shard
	cfg     DrainConfig
	done    context.CancelFunc
	slots   chan struct{}
	workers sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]bool               // shards whose snapshot is incomplete
	under   map[string]context.CancelFunc // cancels a running drain, by instance ID
	final   error                         // a permanent error

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
		d.follow(ctx, Instance{e.Shard, e.Instance})
	case client.Lost:
	}
}

// follow starts the drain of an instance, or cancels it when it is over. The caller holds d.mu.
func (d *drainer) follow(ctx context.Context, i Instance) {
	if len(d.cfg.Only) > 0 && !slices.Contains(d.cfg.Only, i.GetId()) {
		return
	}
	drains := i.Drains()
	end, ours := d.under[i.GetId()]
	switch {
	case !drains && ours:
		end()
	case drains && !ours:
		lasts, cancel := context.WithCancel(ctx)
		d.under[i.GetId()] = cancel
		d.workers.Go(func() {
			d.drain(ctx, lasts, i)
			cancel()
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.under, i.GetId())
			d.finish()
		})
	}
}

// finish ends the watch when nothing is left to drain. The caller holds d.mu.
func (d *drainer) finish() {
	if d.cfg.Once && len(d.waiting) == 0 && len(d.under) == 0 {
		d.done()
	}
}

// drain drains one instance and acknowledges it; drains ends when the instance no longer
// drains.
func (d *drainer) drain(ctx, drains context.Context, i Instance) {
	backoff := rpc.Backoff()
	backoff.First = 8 * time.Second // a drain command is expensive
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
			return // the instance is gone
		}
		if errors.As(err, new(*client.ShardError)) && !client.Transient(err) {
			d.abort(err)
			return
		}
		if retry.Wait(drains, backoff.Draw(failures, d.client.cfg.Random)) != nil {
			return
		}
	}
}

// abort ends the Drain: a shard permanently refused an acknowledgement.
func (d *drainer) abort(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.final = err
	d.done()
}

// attempt drains the instance under drains and acknowledges it under ctx: the event that ends
// the drain may arrive before the answer to the acknowledgement.
func (d *drainer) attempt(ctx, drains context.Context, i Instance) error {
	if err := d.cfg.Do(drains, i); err != nil {
		return err
	}
	shard, err := client.Select(d.shards, i.Shard)
	if err != nil {
		return err
	}
	_, err = d.client.AcknowledgeDrained(ctx, shard, i.GetId())
	return err
}

func (d *drainer) report(s DrainStep) {
	d.steps.Lock()
	defer d.steps.Unlock()
	d.cfg.Report(s)
}
