package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/tracing"
)

// clientMaxReceive is the largest message that a client accepts: a listing of every instance
// of a large shard.
const clientMaxReceive = 64 << 20

// connectTimeout bounds one connection attempt, including the TLS handshake, so that an
// unresponsive address does not delay the next one for long.
const connectTimeout = 5 * time.Second

// ClientConfig is what NewClient needs.
type ClientConfig struct {
	Addrs []string // from ParseAddrs; at least one
	// TLS returns the configuration for one host, a name or IP address without a port, like
	// pki's Endpoint.Client, which also checks the server's SPIFFE ID.
	TLS       func(host string) *tls.Config
	UserAgent string
	Random    func() float64 // returns numbers in [0, 1), for back-off jitter
	// Dialer opens the connections; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// GiveUp ends Do when every address in turn was Misdirected, instead of waiting for ctx to end.
	GiveUp bool
	// Patience is how long Do looks for a leader; an answer may take longer. 0: until ctx ends.
	Patience time.Duration
}

// Client keeps one connection to the presumed leader of a shard: it starts with the first
// address, switches to the next when one fails, and follows the address in a NOT_LEADER
// answer. It connects at its first use. Safe for concurrent use.
type Client struct {
	config ClientConfig

	mu     sync.Mutex
	closed bool
	next   int // index of the next address in Addrs
	target Target
	turns  uint64             // how often it switched to an address
	former []*grpc.ClientConn // connections replaced by TurnOver that calls may still use
}

// Target is a connection and its address.
type Target struct {
	Addr string
	Conn *grpc.ClientConn
	turn uint64 // of the connection: TurnOver opens another one to the same Addr

	attempts *attempts // at Addr
}

// ErrClosed is returned by a closed client.
var ErrClosed = errors.New("the client is closed")

// NewClient returns a client. It does no I/O.
func NewClient(c ClientConfig) (*Client, error) {
	if len(c.Addrs) == 0 || c.TLS == nil || c.Random == nil {
		return nil, errors.New("new RPC client: addresses, a TLS config and a source of randomness are required")
	}
	c.Addrs = slices.Clone(c.Addrs)
	return &Client{config: c}, nil
}

// Target returns the current connection, which the client owns.
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
	attempts := &attempts{addr: addr}
	conn, err := c.dial(attempts)
	if err != nil {
		return Target{}, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c.turns++
	c.target = Target{Addr: addr, Conn: conn, turn: c.turns, attempts: attempts}
	return c.target, nil
}

// Failed tells the client how a call on t ended. If another server may do better, the client
// switches to the leader named in a NOT_LEADER answer, or to the next address. If several
// calls on one connection fail, only the first counts. It reports whether the client follows a
// leader's address, in which case the next attempt needs no back-off.
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

// Drop closes t if it is still the client's connection, so that the next use reconnects, with
// the TLS config's current certificate.
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

// connectionFailed reports whether another server or a new connection may succeed.
func connectionFailed(err error) bool { return status.Code(err) == codes.Unavailable }

// Do makes an idempotent call, and retries it until a leader answers or ctx ends: at once with
// a leader named in an answer and with each untried address, and after Backoff when all have
// been tried. Any other outcome is returned as it is. If ctx or Patience ends first, the error wraps the
// last answer. If there is no connection, the error is a ConnectError.
func (c *Client) Do(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) error {
	return c.DoSeen(ctx, call, func(error) {})
}

// DoSeen is Do that tells failed why an attempt failed, before another one.
func (c *Client) DoSeen(
	ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error, failed func(error),
) error {
	var all failures
	var misdirected int // addresses in turn
	looking, stop := c.patience(ctx)
	defer stop()
	for asked, hops, rounds := 0, 0, 0; ; {
		followed, err := c.once(ctx, call)
		switch {
		case err != nil && all.last != nil && ctx.Err() != nil:
			return c.unanswered(ctx, all)
		case err == nil || !connectionFailed(err):
			return err
		}
		if misdirected++; !Misdirected(err) || hops > 0 { // a leader's address may be about to change
			misdirected = 0
		}
		if c.config.GiveUp && misdirected >= len(c.config.Addrs) {
			return err
		}
		failed(err)
		all.add(err)
		if followed && hops < MaxHops {
			hops++
			continue
		}
		if asked++; asked%len(c.config.Addrs) != 0 {
			continue
		}
		rounds++
		if retry.Wait(looking, Backoff().Draw(rounds, c.config.Random)) != nil {
			return c.unanswered(looking, all)
		}
		hops = 0
	}
}

// patience returns the context of a look for a leader: it ends when another round is not worth a wait.
func (c *Client) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.config.Patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.config.Patience)
}

// ErrEarlierAttempt is wrapped by the error of a call whose last attempt changed nothing, while an
// earlier one may have been carried out.
var ErrEarlierAttempt = errors.New("an earlier attempt may have been carried out")

// failures are the failed attempts of one call.
type failures struct {
	last  error // that explains most
	acted bool  // an attempt may have been carried out
}

func (f *failures) add(err error) {
	f.acted = f.acted || mayHaveActed(err)
	if !Outage(f.last) || !errors.As(err, new(*ConnectError)) { // that another server is down explains less
		f.last = err
	}
}

func (c *Client) unanswered(ctx context.Context, all failures) error {
	err := fmt.Errorf("no leader answered at %v: %w: %w", c.config.Addrs, ctx.Err(), all.last)
	if !all.acted || mayHaveActed(all.last) {
		return err
	}
	return fmt.Errorf("%w; %w", err, ErrEarlierAttempt)
}

// mayHaveActed reports whether an attempt that failed as unavailable may have been carried out.
func mayHaveActed(err error) bool {
	if _, notLeader := NotLeader(err); notLeader || Outage(err) {
		return false
	}
	var unconnected *ConnectError
	return !errors.As(err, &unconnected) || errors.Is(unconnected.Err, io.EOF) || errors.Is(unconnected.Err, syscall.ECONNRESET)
}

// MaxHops is how many named leaders are followed before the next back-off. Servers name each
// other while leadership changes.
const MaxHops = 2

func (c *Client) once(ctx context.Context, call func(context.Context, grpc.ClientConnInterface) error) (followed bool, err error) {
	target, err := c.Target()
	if err != nil {
		return false, err
	}
	err = call(ctx, target.Conn)
	if status.Code(err) == codes.Canceled && ctx.Err() == nil && c.left(target) {
		return false, status.Error(codes.Unavailable, "the connection was closed because another call on it failed")
	}
	err = target.Explain(err) // before the connection is closed
	return c.Failed(target, err), err
}

// left reports whether the client has closed a connection and is not closed itself.
func (c *Client) left(t Target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.target.turn != t.turn
}

// Close closes the connection. Idempotent.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.closeTarget()
}

// dial opens a connection that fails at its first error, since the caller has its own
// back-off, and that stays open while idle.
func (c *Client) dial(a *attempts) (*grpc.ClientConn, error) {
	host, _, err := net.SplitHostPort(a.addr)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithUnaryInterceptor(tracing.Sending()),
		grpc.WithTransportCredentials(notedCredentials{credentials.NewTLS(c.config.TLS(host)), a}),
		grpc.WithContextDialer(a.dialer(c.config.Dialer)),
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
	return grpc.NewClient("passthrough:///"+a.addr, options...)
}
