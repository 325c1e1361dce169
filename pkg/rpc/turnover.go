package rpc

import (
	"context"

	"google.golang.org/grpc"
)

// TurnOver makes new calls and streams use a new connection to the same server, with the TLS
// config's current certificate. Existing streams stay on the old connection until Release, or
// until the client switches to another server.
func (c *Client) TurnOver() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.target.Conn == nil {
		return nil
	}
	conn, err := c.dial(c.target.attempts)
	if err != nil {
		return err
	}
	c.former = append(c.former, c.target.Conn)
	c.target.Conn = conn
	return nil
}

// Release tells the client that nothing started since Target returned t is open any more, so
// that all but the newest connection can be closed.
func (c *Client) Release(t Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.target.turn == t.turn {
		c.closeFormer()
	}
}

func (c *Client) closeFormer() {
	for _, conn := range c.former {
		conn.Close()
	}
	c.former = nil
}

// Latest returns a connection on which each call and stream starts on the newest connection to
// t's server. If the client has switched to another server, they fail as they do on t.
func (c *Client) Latest(t Target) grpc.ClientConnInterface { return latest{c, t} }

type latest struct {
	client *Client
	target Target
}

func (l latest) conn() *grpc.ClientConn {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if now := l.client.target; now.turn == l.target.turn && now.Conn != nil {
		return now.Conn
	}
	return l.target.Conn
}

// Invoke implements grpc.ClientConnInterface.
func (l latest) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return l.conn().Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (l latest) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return l.conn().NewStream(ctx, desc, method, opts...)
}
