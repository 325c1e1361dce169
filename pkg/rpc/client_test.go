package rpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// member is one server of a shard: as leader it answers ListGroups with its name.
type member struct {
	seat *seat
	addr string
}

func (a *authority) member(name string) member {
	a.t.Helper()
	m := member{seat: &seat{}}
	config := a.config()
	config.Gate = m.seat
	config.Services = serving(func(context.Context) (*nstancev1.ListGroupsResponse, error) {
		return &nstancev1.ListGroupsResponse{Groups: []*nstancev1.GroupStatus{{Key: name}}}, nil
	})
	m.addr = serve(a.t, config)
	return m
}

// whoAnswers calls ListGroups through Do.
func whoAnswers(ctx context.Context, c *rpc.Client) (string, error) {
	var name string
	err := c.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		groups, err := nstancev1.NewOperatorServiceClient(conn).ListGroups(ctx, &nstancev1.ListGroupsRequest{})
		if err == nil {
			name = groups.GetGroups()[0].GetKey()
		}
		return err
	})
	return name, err
}

// refusing returns an address where nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	return listener.Addr().String()
}

func TestDoFindsTheLeader(t *testing.T) {
	ours := newAuthority(t, cluster)
	a, b := ours.member("a"), ours.member("b")
	b.seat.set(true, "")
	a.seat.set(false, b.addr)
	dead := refusing(t)
	for name, addrs := range map[string]string{
		"the leader itself":               b.addr,
		"a follower that names it":        a.addr,
		"a dead server first":             dead + "," + b.addr,
		"a dead server, then a follower":  dead + "," + a.addr,
		"the leader behind two dead ones": dead + "," + refusing(t) + "," + b.addr,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := whoAnswers(t.Context(), ours.client(addrs, ours.operator(time.Hour))); got != "b" || err != nil {
				t.Fatalf("answered by %q, %v", got, err)
			}
		})
	}
}

func TestDoFollowsALeaderThatMoves(t *testing.T) {
	ours := newAuthority(t, cluster)
	a, b := ours.member("a"), ours.member("b")
	client := ours.client(a.addr+","+b.addr, ours.operator(time.Hour))
	for range 3 {
		a.seat.set(true, "")
		b.seat.set(false, a.addr)
		if got, err := whoAnswers(t.Context(), client); got != "a" || err != nil {
			t.Fatalf("answered by %q, %v", got, err)
		}
		a.seat.set(false, b.addr)
		b.seat.set(true, "")
		if got, err := whoAnswers(t.Context(), client); got != "b" || err != nil {
			t.Fatalf("answered by %q, %v", got, err)
		}
	}
}

// TestDoBetweenTwoLeaders has servers that name each other until one takes over.
func TestDoBetweenTwoLeaders(t *testing.T) {
	ours := newAuthority(t, cluster)
	a, b := ours.member("a"), ours.member("b")
	a.seat.set(false, b.addr)
	b.seat.set(false, a.addr)
	timer := time.AfterFunc(300*time.Millisecond, func() { b.seat.set(true, "") })
	defer timer.Stop()
	if got, err := whoAnswers(t.Context(), ours.client(a.addr, ours.operator(time.Hour))); got != "b" || err != nil {
		t.Fatalf("answered by %q, %v", got, err)
	}
}

// overdue is a context whose deadline passes when the test says so, however busy the machine is.
type overdue struct {
	context.Context
	passed chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.passed }

func (o overdue) Err() error {
	select {
	case <-o.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestDoGivesUpWithTheContextAndSaysWhy(t *testing.T) {
	ours := newAuthority(t, cluster)
	dead := refusing(t)
	ctx := overdue{t.Context(), make(chan struct{})}
	var attempts atomic.Int32
	client := must(rpc.NewClient(rpc.ClientConfig{
		Addrs: []string{dead}, TLS: clientTLS(ours.endpoint(ours.operator(time.Hour))), Random: func() float64 { return 0 },
		Dialer: func(attempt context.Context, addr string) (net.Conn, error) {
			if attempts.Add(1) == 2 { // by then the first has been refused
				close(ctx.passed)
			}
			return (&net.Dialer{}).DialContext(attempt, "tcp", addr)
		},
	}))(t)
	defer client.Close()
	_, err := whoAnswers(ctx, client)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), dead) {
		t.Fatalf("got %v, want an error that names the deadline, the address and the refusal", err)
	}
}

func TestDoReturnsAnAnswerAsItIs(t *testing.T) {
	ours := newAuthority(t, cluster)
	calls := 0
	config := ours.config()
	config.Services = serving(func(context.Context) (*nstancev1.ListGroupsResponse, error) {
		calls++
		return nil, rpc.NotFound.Errorf("group %q: no such group", "web")
	})
	_, err := whoAnswers(t.Context(), ours.client(serve(t, config), ours.operator(time.Hour)))
	if status.Code(err) != codes.NotFound || status.Convert(err).Message() != `group "web": no such group` || calls != 1 {
		t.Fatalf("got %v after %d calls", err, calls)
	}
}

func TestClientRefusesAServerOfAnotherShard(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.TLS = ours.endpoint(ours.server("dev-2")).Server()
	err := listGroups(t.Context(), ours.dial(serve(t, config), ours.operator(time.Hour)))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "dev-2") {
		t.Fatalf("got %v, want an error that names the other shard", err)
	}
}

func TestFailedCountsOncePerConnection(t *testing.T) {
	ours := newAuthority(t, cluster)
	client := ours.client("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", nil)
	first := must(client.Target())(t)
	gone := status.Error(codes.Unavailable, "gone")
	client.Failed(first, gone)
	second := must(client.Target())(t)
	client.Failed(first, gone)
	client.Failed(second, status.Error(codes.PermissionDenied, "no"))
	if again := must(client.Target())(t); first.Addr != "127.0.0.1:1" || again != second || second.Addr != "127.0.0.1:2" {
		t.Fatalf("went from %s to %s to %s", first.Addr, second.Addr, again.Addr)
	}
}

// TestDoAfterAnotherCallFailed: a call whose connection another call closes is made again.
func TestDoAfterAnotherCallFailed(t *testing.T) {
	ours := newAuthority(t, cluster)
	m := ours.member("a")
	m.seat.set(true, "")
	c := ours.client(m.addr, ours.operator(time.Hour))
	attempts := 0
	err := c.Do(t.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
		if attempts++; attempts == 1 {
			c.Failed(must(c.Target())(t), status.Error(codes.Unavailable, "of another call"))
		}
		_, err := nstancev1.NewOperatorServiceClient(conn).ListGroups(ctx, &nstancev1.ListGroupsRequest{})
		return err
	})
	if err != nil || attempts != 2 {
		t.Errorf("%v after %d attempts, want none after 2", err, attempts)
	}
}

func TestClosedClient(t *testing.T) {
	client := newAuthority(t, cluster).client("127.0.0.1:1", nil)
	target := must(client.Target())(t)
	client.Close()
	client.Close()
	if _, err := client.Target(); !errors.Is(err, rpc.ErrClosed) {
		t.Errorf("Target after Close: %v", err)
	}
	if client.Failed(target, status.Error(codes.Unavailable, "gone")) {
		t.Error("a closed client followed a leader")
	}
}
