package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server"
)

// The attacks of the siege.
const (
	attackHello       = "client_hello"
	attackHalfOpen    = "half_open"
	attackGone        = "messages_deleted_instance"
	attackWrongRole   = "messages_wrong_role"
	attackStreams     = "streams"
	attackHealth      = "health_port"
	attackNonces      = "forged_nonces"
	attackConnections = 4000
	attackHalfOpens   = 16500
	attackRedial      = 5 * time.Second // after a connection was refused or closed
)

func attackNames() []string {
	return []string{attackHello, attackHalfOpen, attackGone, attackWrongRole, attackStreams, attackHealth, attackNonces}
}

// attackSources are the attackers' addresses; agents, operators and servers are at 127.0.0.1.
func attackSources() []string { return []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"} }

type attackSettings struct {
	Kit     string             `json:"kit"`
	Attack  string             `json:"attack"`
	Targets []server.Endpoints `json:"targets"`
}

// attackers has what each attack needs.
type attackers struct {
	attackSettings
	kit      kit
	ca       *pki.CA
	attempts atomic.Int64
}

// playAttackers attacks until the role ends.
func playAttackers(ctx context.Context, s *stage) error {
	a := &attackers{}
	if err := s.read(&a.attackSettings); err != nil {
		return err
	}
	var err error
	if a.kit, err = readKit(a.Kit); err != nil {
		return err
	}
	if a.ca, err = a.kit.ca(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, on := range a.Targets {
		for _, source := range attackSources() {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 10 * time.Second}
			if err := a.begin(ctx, &all, dialer, on); err != nil {
				cancel()
				return err
			}
		}
	}
	s.tell(event{Kind: "attacking"})
	for command := range s.commands {
		s.tell(event{Kind: command, Value: float64(a.attempts.Load())})
	}
	cancel()
	all.Wait()
	return nil
}

// begin starts the attack from one source on one server.
func (a *attackers) begin(ctx context.Context, all *sync.WaitGroup, from *net.Dialer, on server.Endpoints) error {
	many := func(n int, once func(context.Context) error) {
		for range n {
			all.Go(func() { a.again(ctx, once) })
		}
	}
	each := len(attackSources()) * len(a.Targets)
	switch a.Attack {
	case attackHello:
		many(attackConnections/each, func(ctx context.Context) error { return sendHello(ctx, from, on.Agent) })
	case attackHalfOpen:
		many(attackHalfOpens/each, func(ctx context.Context) error { return sendNothing(ctx, from, on.Agent) })
	case attackHealth:
		many(1000/each, func(ctx context.Context) error { return sendSlowly(ctx, from, on.Health) })
	case attackGone:
		id, err := fleet.NewID(kind, time.Now(), rand.Reader)
		if err != nil {
			return err
		}
		return a.floods(ctx, all, from, id, on.Agent, "/nstance.v1.AgentService/SubmitPublicKeys")
	case attackWrongRole:
		return a.floods(ctx, all, from, a.ownID(), on.Operator, "/nstance.v1.OperatorService/UpsertGroup")
	case attackStreams:
		return a.opensStreams(ctx, all, from, on.Agent)
	case attackNonces:
		return a.forges(ctx, all, from, on.Registration)
	default:
		return fmt.Errorf("no attack %q", a.Attack)
	}
	return nil
}

// ownID is the instance whose agent is compromised.
func (a *attackers) ownID() fleet.InstanceID { return a.kit.Instances[len(a.kit.Instances)-1] }

// again calls once repeatedly, with a pause after each refusal.
func (a *attackers) again(ctx context.Context, once func(context.Context) error) {
	for ctx.Err() == nil {
		a.attempts.Add(1)
		if err := once(ctx); err != nil && retry.Wait(ctx, attackRedial) != nil {
			return
		}
	}
}

var errClosed = errors.New("the server closed the connection")

// hold dials, calls say, and waits until the server closes the connection.
func hold(ctx context.Context, from *net.Dialer, addr string, say func(net.Conn) error) error {
	conn, err := from.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if err := say(conn); err != nil {
		return err
	}
	for buf := make([]byte, 512); err == nil; {
		_, err = conn.Read(buf)
	}
	return errClosed
}

// sendHello sends a ClientHello of 64 KiB without its end.
func sendHello(ctx context.Context, from *net.Dialer, addr string) error {
	return hold(ctx, from, addr, func(conn net.Conn) error {
		const record = 1 << 14
		hello := append([]byte{1, 0, 255, 252, 3, 3}, make([]byte, 4*record-64)...)
		for len(hello) > 0 {
			n := min(record, len(hello))
			if _, err := conn.Write(append([]byte{22, 3, 1, byte(n >> 8), byte(n & 0xff)}, hello[:n]...)); err != nil {
				return err
			}
			hello = hello[n:]
		}
		return nil
	})
}

func sendNothing(ctx context.Context, from *net.Dialer, addr string) error {
	return hold(ctx, from, addr, func(net.Conn) error { return nil })
}

// sendSlowly sends a request's header at a byte a second.
func sendSlowly(ctx context.Context, from *net.Dialer, addr string) error {
	return hold(ctx, from, addr, func(conn net.Conn) error {
		for text := "GET / HTTP/1.1\r\nX: " + string(make([]byte, 1000)); text != ""; text = text[1:] {
			if _, err := conn.Write([]byte(text[:1])); err != nil {
				return err
			}
			if err := retry.Wait(ctx, time.Second); err != nil {
				return err
			}
		}
		return nil
	})
}
