// Package admin is one client for everything a person or a script asks of
// Nstance: operator calls to the shards, and, for what no server can be asked
// yet, the cluster's own storage and secrets. Commands and other front ends are
// thin skins over it.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
)

// Config is what a Client needs.
type Config struct {
	// TLS returns the mutual TLS config for a server of one shard at a host; it
	// checks both names.
	TLS       func(shard, host string) *tls.Config
	UserAgent string
	// Identity, when it is set, is what TLS shows: it is renewed when that is due, by
	// calls and by watches.
	// Warn is told when that can't be done; optional.
	Identity *Identity
	Warn     func(error)
	// Waiting is told, with a ShardError, each time a shard can't be reached or has
	// no leader and is tried again, and with nil when that is over; several
	// goroutines may call it. Optional.
	Waiting func(shard string, err error)
}

// Client asks shards. It keeps one connection to each and is safe for
// concurrent use.
type Client struct {
	cfg Config

	renewal    sync.Mutex // held while the identity is renewed
	renewAgain time.Time  // not before

	mu    sync.Mutex
	conns map[string]*rpc.Client
}

// NewClient makes a client. It does no I/O.
func NewClient(cfg Config) *Client {
	return &Client{cfg: cfg, conns: map[string]*rpc.Client{}}
}

// Close ends all connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = map[string]*rpc.Client{}
}

func (c *Client) shard(s Shard) (*rpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conns[s.ID]; conn != nil {
		return conn, nil
	}
	conn, err := c.connect(s)
	if err != nil {
		return nil, err
	}
	c.conns[s.ID] = conn
	return conn, nil
}

// connect makes a connection of its own to a shard.
func (c *Client) connect(s Shard) (*rpc.Client, error) {
	return rpc.NewClient(rpc.ClientConfig{
		Addrs: s.Addrs, UserAgent: c.cfg.UserAgent, Random: rand.Float64,
		TLS: func(host string) *tls.Config { return c.cfg.TLS(s.ID, host) },
	})
}

// ask makes one call to a shard's leader, again and again while none answers and
// ctx lasts. The call must be safe to repeat. Its error is a ShardError.
func ask[T any](ctx context.Context, c *Client, s Shard, call func(context.Context, nstancev1.OperatorServiceClient) (T, error)) (T, error) {
	var answer T
	waiting := c.cfg.Waiting
	if waiting == nil {
		waiting = func(string, error) {}
	}
	defer waiting(s.ID, nil)
	c.renewFirst(ctx, s)
	conn, err := c.shard(s)
	if err == nil {
		err = conn.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			answer, err = call(ctx, nstancev1.NewOperatorServiceClient(cc))
			if Transient(err) {
				waiting(s.ID, &ShardError{Shard: s.ID, Err: err})
			}
			return err
		})
	}
	if err != nil {
		return answer, &ShardError{Shard: s.ID, Err: err}
	}
	return answer, nil
}

// gather makes the same call to all shards at once and joins the answers in the
// order of the shards. What some shards answered comes beside the others' error.
func gather[T any](ctx context.Context, c *Client, shards []Shard, call func(ctx context.Context, shard string, s nstancev1.OperatorServiceClient) ([]T, error)) ([]T, error) {
	answers := make([][]T, len(shards))
	errs := make([]error, len(shards))
	var wg sync.WaitGroup
	for i, s := range shards {
		wg.Go(func() {
			answers[i], errs[i] = ask(ctx, c, s, func(ctx context.Context, client nstancev1.OperatorServiceClient) ([]T, error) {
				return call(ctx, s.ID, client)
			})
		})
	}
	wg.Wait()
	all := []T{}
	for _, a := range answers {
		all = append(all, a...)
	}
	return all, errors.Join(errs...)
}
