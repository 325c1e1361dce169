// Package admin implements administration: operator calls to the shards and, for what servers
// have no call for, operations on the cluster's storage and secrets. Commands and other front
// ends are thin wrappers around it.
package admin

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
)

// Config configures a Client.
type Config struct {
	// Identity is the client certificate. Calls and watches renew it when it is due.
	Identity  *Identity
	UserAgent string
	Random    func() float64 // yields numbers in [0, 1), for jitter
	// Patience is how long a call looks for the leader of a shard; 0: until its context ends.
	Patience time.Duration
	// Warn is called when the identity can't be renewed. Optional.
	Warn func(error)
	// Waiting is called with a client.ShardError each time a shard that is unreachable or
	// without a leader is retried, and with nil when that is over. It may be called
	// concurrently. Optional.
	Waiting func(shard string, err error)
}

// Client calls shards. It is safe for concurrent use.
type Client struct {
	cfg Config
	api *client.Client

	renewal    sync.Mutex // held while the identity is renewed
	renewAgain time.Time  // earliest time of the next attempt
}

// NewClient makes a client. It does no I/O.
func NewClient(cfg Config) *Client {
	c := &Client{cfg: cfg}
	c.api = client.New(client.Config{
		TLS: cfg.Identity.TLS, UserAgent: cfg.UserAgent, Random: cfg.Random, Waiting: cfg.Waiting,
		Before: c.renewIfDue, GiveUp: true, Patience: cfg.Patience,
	})
	return c
}

// Close closes all connections.
func (c *Client) Close() { c.api.Close() }

// watch is client.Watch; it also keeps the identity renewed.
func (c *Client) watch(ctx context.Context, shards []client.Shard, of []string, see func(client.Event) error) error {
	return c.renewing(ctx, shards, func() error { return c.api.Watch(ctx, shards, of, see) })
}

// renewing keeps the identity renewed while watch runs.
func (c *Client) renewing(ctx context.Context, shards []client.Shard, watch func() error) error {
	watching, stop := context.WithCancel(ctx)
	var keep sync.WaitGroup
	keep.Go(func() { c.runRenewal(watching, shards) })
	defer keep.Wait()
	defer stop()
	return watch()
}

// each makes a call to all shards concurrently, each of which has one answer. On an error it
// also returns the answers of the other shards.
func each[T any](
	ctx context.Context, c *Client, shards []client.Shard, call func(context.Context, string, client.Service) (T, error),
) ([]T, error) {
	return client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]T, error) {
		answer, err := call(ctx, shard, s)
		if err != nil {
			return nil, err
		}
		return []T{answer}, nil
	})
}
