package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Config is what a Client needs.
type Config struct {
	// TLS returns the mutual TLS config for a server of one shard at a host; it
	// checks both names.
	TLS       func(shard, host string) *tls.Config
	UserAgent string
	Random    func() float64 // yields numbers from [0, 1), for the waits between attempts
	// Before is called ahead of each call to a shard and of each watch, and may renew
	// what TLS shows. Optional.
	Before func(context.Context, Shard)
	// Waiting is told, with a ShardError, each time a shard can't be reached or has
	// no leader and is tried again, and with nil when that is over; several
	// goroutines may call it. Optional.
	Waiting func(shard string, err error)
	// Dialer makes the connections; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Client asks shards. It keeps one connection to each and is safe for
// concurrent use.
type Client struct {
	cfg Config

	mu    sync.Mutex
	conns map[string]connection // by shard
}

type connection struct {
	*rpc.Client
	addrs []string // of the shard that it was made to
}

// New makes a client. It does no I/O.
func New(cfg Config) *Client {
	if cfg.Before == nil {
		cfg.Before = func(context.Context, Shard) {}
	}
	if cfg.Waiting == nil {
		cfg.Waiting = func(string, error) {}
	}
	return &Client{cfg: cfg, conns: map[string]connection{}}
}

// Close ends all connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = map[string]connection{}
}

// Forget ends the connection to a shard, and with it the calls to it that are under
// way. Watches go on.
func (c *Client) Forget(shard string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, ok := c.conns[shard]; ok {
		conn.Close()
		delete(c.conns, shard)
	}
}

// TurnOver has the calls to come use new connections, which show the certificate
// that TLS has now.
func (c *Client) TurnOver() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.TurnOver())
	}
	return errors.Join(errs...)
}

// shard returns the connection to a shard; a new one when it has other addresses now.
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

// connect makes a connection of its own to a shard.
func (c *Client) connect(s Shard) (*rpc.Client, error) {
	return rpc.NewClient(rpc.ClientConfig{
		Addrs: s.Addrs, UserAgent: c.cfg.UserAgent, Random: c.cfg.Random, Dialer: c.cfg.Dialer,
		TLS: func(host string) *tls.Config { return c.cfg.TLS(s.ID, host) },
	})
}

// Service is what a shard's leader can be asked for.
type Service = nstancev1.OperatorServiceClient

// Call makes one call to a shard's leader, again and again while none answers and
// ctx lasts. The call must be safe to repeat: one whose answer got lost may have
// worked. A change on condition may then fail with ABORTED because of its own earlier
// try. The error is a ShardError.
func Call[T any](ctx context.Context, c *Client, s Shard, call func(context.Context, Service) (T, error)) (T, error) {
	var answer T
	defer c.cfg.Waiting(s.ID, nil)
	c.cfg.Before(ctx, s)
	conn, err := c.shard(s)
	if err == nil {
		err = conn.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			answer, err = call(ctx, nstancev1.NewOperatorServiceClient(cc))
			if Transient(err) {
				c.cfg.Waiting(s.ID, &ShardError{Shard: s.ID, Err: err})
			}
			return err
		})
	}
	if err != nil {
		return answer, &ShardError{Shard: s.ID, Err: err}
	}
	return answer, nil
}

// Gather makes the same call to all shards at once and joins the answers in the
// order of the shards. What some shards answered comes beside the others' error.
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

// RenewCertificate asks a shard's leader for another certificate of this client,
// for a public key (PEM). It connects anew, and so shows the certificate that TLS
// has now.
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
