package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Config is the configuration of a Client.
type Config struct {
	// TLS returns the mutual TLS config for a server of a shard at a host; it checks both
	// names.
	TLS       func(shard, host string) *tls.Config
	UserAgent string
	Random    func() float64 // returns numbers in [0, 1), for back-off jitter
	// Before is called before each call to a shard and each watch, and may renew the
	// certificate used by TLS. Optional.
	Before func(context.Context, Shard)
	// Waiting is called with a ShardError each time a shard is unreachable or has no leader
	// and is retried, and with nil when it responds again; several goroutines may call it.
	// Optional.
	Waiting func(shard string, err error)
	// Dialer opens connections; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// GiveUp ends a call, and a watch that has not yet begun, when every address of a shard is
	// rpc.Misdirected, instead of retrying.
	GiveUp bool
	// Patience is how long a call looks for a leader; an answer may take longer. 0: until ctx ends.
	Patience time.Duration
}

// Client calls shards. It keeps one connection to each and is safe for concurrent use.
type Client struct {
	cfg Config

	mu    sync.Mutex
	conns map[string]connection // by shard
}

type connection struct {
	*rpc.Client
	addrs []string // the shard's addresses when it was opened
}

// New returns a client. It does no I/O.
func New(cfg Config) *Client {
	if cfg.Before == nil {
		cfg.Before = func(context.Context, Shard) {}
	}
	if cfg.Waiting == nil {
		cfg.Waiting = func(string, error) {}
	}
	return &Client{cfg: cfg, conns: map[string]connection{}}
}

// Close closes all connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = map[string]connection{}
}

// Forget closes the connection to a shard and aborts calls in progress on it. Watches are not
// affected.
func (c *Client) Forget(shard string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, ok := c.conns[shard]; ok {
		conn.Close()
		delete(c.conns, shard)
	}
}

// TurnOver makes future calls use new connections, with TLS's current certificate.
func (c *Client) TurnOver() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.TurnOver())
	}
	return errors.Join(errs...)
}

// shard returns the connection to a shard, reopened if its addresses have changed.
func (c *Client) shard(s Shard) (*rpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.conns[s.ID]
	if ok && slices.Equal(before.addrs, s.Addrs) {
		return before.Client, nil
	}
	conn, err := c.connect(s)
	if err != nil {
		return nil, err
	}
	if ok {
		before.Close()
	}
	c.conns[s.ID] = connection{Client: conn, addrs: slices.Clone(s.Addrs)}
	return conn, nil
}

// connect opens a separate connection to a shard.
func (c *Client) connect(s Shard) (*rpc.Client, error) {
	return rpc.NewClient(rpc.ClientConfig{
		Addrs: s.Addrs, UserAgent: c.cfg.UserAgent, Random: c.cfg.Random, Dialer: c.cfg.Dialer,
		TLS: func(host string) *tls.Config { return c.cfg.TLS(s.ID, host) }, GiveUp: c.cfg.GiveUp, Patience: c.cfg.Patience,
	})
}

// Service is the API of a shard's leader.
type Service = nstancev1.OperatorServiceClient

// Call makes one call to a shard's leader, with retries until a leader answers or ctx ends.
// The call must be idempotent: one whose response was lost may have succeeded. A conditional
// change may then fail with ABORTED because of its own earlier attempt. The error is a
// ShardError.
func Call[T any](ctx context.Context, c *Client, s Shard, call func(context.Context, Service) (T, error)) (T, error) {
	var answer T
	defer c.cfg.Waiting(s.ID, nil)
	c.cfg.Before(ctx, s)
	conn, err := c.shard(s)
	if err == nil {
		err = conn.DoSeen(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			answer, err = call(ctx, nstancev1.NewOperatorServiceClient(cc))
			return err
		}, func(err error) { c.cfg.Waiting(s.ID, &ShardError{Shard: s.ID, Err: err}) })
	}
	if err != nil {
		return answer, &ShardError{Shard: s.ID, Err: err}
	}
	return answer, nil
}

// Gather makes the same call to all shards concurrently and joins the results in the order of
// the shards. If some shards fail, it returns the results of the others and an error.
func Gather[T any](
	ctx context.Context, c *Client, shards []Shard, call func(context.Context, string, Service) ([]T, error),
) ([]T, error) {
	answers := make([][]T, len(shards))
	errs := make([]error, len(shards))
	var wg sync.WaitGroup
	for i, s := range shards {
		wg.Go(func() {
			answers[i], errs[i] = Call(ctx, c, s, func(ctx context.Context, leader Service) ([]T, error) {
				return call(ctx, s.ID, leader)
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

// RenewCertificate requests another certificate for this client from a shard's leader, for a
// public key (PEM). It opens a new connection, and so uses TLS's current certificate.
func (c *Client) RenewCertificate(ctx context.Context, s Shard, publicKey string) (granted *nstancev1.Identity, err error) {
	conn, err := c.connect(s)
	if err == nil {
		defer conn.Close()
		err = conn.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
			request := &nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: publicKey}
			answer, err := nstancev1.NewOperatorServiceClient(cc).RenewCertificate(ctx, request)
			granted = answer.GetIdentity()
			return err
		})
	}
	if err != nil {
		return nil, &ShardError{Shard: s.ID, Err: err}
	}
	return granted, nil
}
