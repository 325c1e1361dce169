// Package admin is what a person or a script asks of Nstance: operator calls to
// the shards, and, for what no server can be asked yet, the cluster's own storage
// and secrets. Commands and other front ends are thin skins over it.
package admin

import (
	"context"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/client"
)

// Config is what a Client needs.
type Config struct {
	// Identity is what servers are shown. It is renewed when that is due, by calls
	// and by watches.
	Identity  *Identity
	UserAgent string
	Random    func() float64 // yields numbers from [0, 1), for waits
	// Warn is told when the identity can't be renewed; optional.
	Warn func(error)
	// Waiting is told, with a client.ShardError, each time a shard can't be reached
	// or has no leader and is tried again, and with nil when that is over; several
	// goroutines may call it. Optional.
	Waiting func(shard string, err error)
}

// Client asks shards. It is safe for concurrent use.
type Client struct {
	cfg Config
	api *client.Client

	renewal    sync.Mutex // held while the identity is renewed
	renewAgain time.Time  // not before
}

// NewClient makes a client. It does no I/O.
func NewClient(cfg Config) *Client {
	c := &Client{cfg: cfg}
	c.api = client.New(client.Config{
		TLS: cfg.Identity.TLS, UserAgent: cfg.UserAgent, Random: cfg.Random, Waiting: cfg.Waiting,
		Before: c.renewIfDue,
	})
	return c
}

// Close ends all connections.
func (c *Client) Close() { c.api.Close() }

// watch is client.Watch, which keeps the identity renewed meanwhile.
func (c *Client) watch(ctx context.Context, shards []client.Shard, of []string, see func(client.Event) error) error {
	watching, stop := context.WithCancel(ctx)
	var keep sync.WaitGroup
	keep.Go(func() { c.keepIdentity(watching, shards) })
	defer keep.Wait()
	defer stop()
	return c.api.Watch(ctx, shards, of, see)
}
