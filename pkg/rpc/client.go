package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/retry"
)

// clientMaxReceive is the largest answer that a client takes: a listing of every
// instance of a large shard.
const clientMaxReceive = 64 << 20

// connectTimeout bounds one attempt to connect, TLS handshake included. An
// address that swallows packets must not hold up the next one for long.
const connectTimeout = 5 * time.Second

// ClientConfig is what NewClient needs.
type ClientConfig struct {
	Addrs []string // from ParseAddrs; at least one
	// TLS makes the configuration for one host, a name or IP address without a
	// port, as pki's Endpoint.Client does, which checks the server's SPIFFE id too.
	TLS       func(host string) *tls.Config
	UserAgent string
	Random    func() float64 // yields numbers from [0, 1), for the waits between attempts
	// Dialer makes the connections; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Client keeps one connection to the server of a shard that leads, as far as it
// knows: it starts with the first address, goes on to the next when one fails,
// and follows the address that a NOT_LEADER answer names. It connects when it is
// first used. It is safe for concurrent use.
type Client struct {
	config ClientConfig

	mu     sync.Mutex
	closed bool
	next   int // the index in Addrs to turn to
	target Target
	turns  uint64             // how often it turned to an address
	former []*grpc.ClientConn // what TurnOver replaced and calls may still use
}

// Target is a connection and the address it leads to.
type Target struct {
	Addr string
	Conn *grpc.ClientConn
	turn uint64 // which turn to Addr it is of: TurnOver makes another of the same one
}

// ErrClosed is the answer of a client that was closed.
var ErrClosed = errors.New("the client is closed")

// NewClient makes a client. It does no I/O.
func NewClient(c ClientConfig) (*Client, error) {
	if len(c.Addrs) == 0 || c.TLS == nil || c.Random == nil {
		return nil, errors.New("make an RPC client: addresses, a TLS config and a source of randomness are needed")
	}
	c.Addrs = slices.Clone(c.Addrs)
	return &Client{config: c}, nil
}

// Target returns the connection to use now. The client owns it.
func (c *Client) Target() (Target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Target{}, ErrClosed
	}
	if c.target.Conn == nil {
		addr := c.config.Addrs[c.next%len(c.config.Addrs)]
		c.next++
		return c.turnTo(addr)
	}
	return c.target, nil
}

func (c *Client) turnTo(addr string) (Target, error) {
	conn, err := c.dial(addr)
	if err != nil {
		return Target{}, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c.turns++
	c.target = Target{Addr: addr, Conn: conn, turn: c.turns}
	return c.target, nil
}

// Failed tells the client how a call on t ended, so that it turns elsewhere when
// another server may do better: to the leader that a NOT_LEADER answer names, or
// to the next address. Several calls of one connection may report; the first one
// counts. It reports whether it follows a leader's address, in which case the
// next attempt needs no wait.
func (c *Client) Failed(t Target, err error) (followed bool) {
	leader, notLeader := NotLeader(err)
	if !notLeader && !connectionFailed(err) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.target.turn != t.turn || c.target.Conn == nil {
		return false
	}
	c.closeTarget()
	if leader == "" || leader == t.Addr {
		return false
	}
	_, err = c.turnTo(leader)
	return err == nil
}

// Drop closes t, when it is still the client's connection, so that the next use
// connects anew and, after a change of the TLS config's certificate, with it.
func (c *Client) Drop(t Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.target.Conn == t.Conn && t.Conn != nil {
		c.closeTarget()
	}
}

func (c *Client) closeTarget() {
	c.closeFormer()
	if c.target.Conn != nil {
		c.target.Conn.Close()
	}
	c.target = Target{}
}

// connectionFailed reports whether another server, or a new connection, may give
// another answer.
func connectionFailed(err error) bool { return status.Code(err) == codes.Unavailable }

// Do makes a call that is safe to repeat, and repeats it while no leader answers,
// until ctx ends: at once for a leader that an answer named and for each address
// not asked yet, after Backoff when all have been asked. Any other outcome is
// returned as it is. When ctx ends first, the error wraps the last answer.
func (c *Client) Do(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
	var last error
	for asked, hops, rounds := 0, 0, 0; ; {
		followed, err := c.once(ctx, call)
		switch {
		case err != nil && last != nil && ctx.Err() != nil:
			return fmt.Errorf("no leader answered at %v: %w: %w", c.config.Addrs, ctx.Err(), last)
		case err == nil || !connectionFailed(err):
			return err
		case followed && hops < MaxHops:
			last = err
			hops++
			continue
		}
		last = err
		if asked++; asked%len(c.config.Addrs) != 0 {
			continue
		}
		rounds++
		if retry.Wait(ctx, Backoff().Draw(rounds, c.config.Random)) != nil {
			return fmt.Errorf("no leader answered at %v: %w: %w", c.config.Addrs, ctx.Err(), last)
		}
		hops = 0
	}
}

// MaxHops is how many named leaders are followed before the next wait. Servers
// that name each other are between two leaders.
const MaxHops = 2

func (c *Client) once(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) (followed bool, err error) {
	target, err := c.Target()
	if err != nil {
		return false, err
	}
	err = call(ctx, target.Conn)
	return c.Failed(target, err), err
}

// Close ends the connection. It may be called more than once.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.closeTarget()
}

// dial makes a connection that is given up on its first failure (the caller's
// waits are the only ones) and that stays open however long it is silent.
func (c *Client) dial(addr string) (*grpc.ClientConn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(c.config.TLS(host))),
		grpc.WithUserAgent(c.config.UserAgent),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                KeepaliveTime,
			Timeout:             KeepaliveTimeout,
			PermitWithoutStream: true,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(clientMaxReceive)),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithWriteBufferSize(writeBuffer),
	}
	if c.config.Dialer != nil {
		options = append(options, grpc.WithContextDialer(c.config.Dialer))
	}
	return grpc.NewClient("passthrough:///"+addr, options...)
}
