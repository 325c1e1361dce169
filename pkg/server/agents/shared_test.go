package agents_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/agents"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// twin is a machine that tries to hold a health stream of the instance like an agent: when its
// stream ends it reconnects after a back-off, a longer one if it was refused.
type twin struct {
	addr, run string
	service   *agents.Service

	opened  int
	ends    []error
	current *stream
}

// caller returns the context of a call of the twin.
func (w *twin) caller(s *stream) context.Context {
	addr, _ := net.ResolveTCPAddr("tcp", w.addr)
	ctx := peer.NewContext(s.ctx, &peer.Peer{Addr: addr})
	return metadata.NewIncomingContext(ctx, metadata.Pairs("nstance-run", strings.Repeat(w.run, 32)))
}

func (w *twin) live(done <-chan struct{}) {
	for {
		s := newStream()
		s.ctx = w.caller(s) //nolint:fatcontext // each stream has one of its own
		w.current = s
		w.opened++
		err := serve(w.service, s)
		w.ends = append(w.ends, err)
		pause := 200 * time.Millisecond
		if rpc.Shared(rpc.Status(err)) {
			pause = time.Minute
		}
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
	}
}

// twins runs machines with one identity, each started a second after the other, for a time.
func twins(t *testing.T, sh *shard, last time.Duration, machines ...*twin) {
	t.Helper()
	svc, done := service(sh), make(chan struct{})
	for _, m := range machines {
		m.service = svc
		go m.live(done)
		time.Sleep(time.Second)
	}
	time.Sleep(last)
	synctest.Wait()
	t.Cleanup(func() {
		close(done)
		for _, m := range machines {
			m.current.cancel()
		}
	})
}

// TestSharedIdentity: two machines with one identity do not displace each other for ever. One
// keeps its streams, the other is refused, and the shard is told once.
func TestSharedIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string // addresses
		known         []netip.Addr
		keeps         int // 0 or 1
		says          []string
	}{
		"the first has the address": {"10.0.0.1:1000", "10.0.0.2:2000", []netip.Addr{netip.MustParseAddr("10.0.0.1")}, 0,
			[]string{"10.0.0.1 keeps", "10.0.0.2 is refused", "the provider lists its address"}},
		"the second has the address": {"10.0.0.1:1000", "10.0.0.2:2000", []netip.Addr{netip.MustParseAddr("10.0.0.2")}, 1,
			[]string{"10.0.0.2 keeps", "10.0.0.1 is refused", "the provider lists its address"}},
		"the provider does not know": {"10.0.0.1:1000", "10.0.0.2:2000", nil, 0,
			[]string{"10.0.0.1 keeps", "10.0.0.2 is refused", "connected first"}},
		"behind one address": {"192.0.2.1:1000", "192.0.2.1:2000", nil, 0,
			[]string{"192.0.2.1:1000 keeps", "192.0.2.1:2000 is refused", "connected first"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sh := newShard()
				sh.addresses = c.known
				both := []*twin{{addr: c.first, run: "a"}, {addr: c.second, run: "b"}}
				twins(t, sh, 10*time.Minute, both...)
				keeper, other := both[c.keeps], both[1-c.keeps]
				if keeper.opened > 3 {
					t.Errorf("the machine that keeps the identity opened %d streams", keeper.opened)
				}
				if n := len(other.ends); n < 5 || n > 14 || !errors.Is(other.ends[n-1], rpc.IdentityShared) {
					t.Errorf("the other one: %v", other.ends)
				}
				var said []string
				for _, e := range sh.told() {
					if strings.HasPrefix(e, "shared: ") {
						said = append(said, e)
					}
				}
				if len(said) != 1 {
					t.Fatalf("told %q, want it once", said)
				}
				for _, part := range c.says {
					if !strings.Contains(said[0], part) {
						t.Errorf("%s: want %q in it", said[0], part)
					}
				}
			})
		})
	}
}

// TestOneMachine: an agent that reconnects while its old stream looks open gets its place at
// once, however often, and also from another address.
func TestOneMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		svc := service(sh)
		var all []*stream
		for n, w := range []twin{
			{addr: "10.0.0.1:1", run: "a"}, {addr: "10.0.0.1:2", run: "a"}, {addr: "10.0.0.1:3", run: "b"},
			{addr: "10.0.0.9:1", run: "b"}, {addr: "10.0.0.9:2", run: "c"}, {addr: "10.0.0.9:3", run: "c"},
		} {
			s := newStream()
			s.ctx = w.caller(s) //nolint:fatcontext // each stream has one of its own
			all = append(all, s)
			ended := make(chan error, 1)
			go func() { ended <- serve(svc, s) }()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("stream %d of one machine: %v", n, err)
			default:
			}
			time.Sleep(time.Second)
		}
		for _, s := range all {
			s.cancel()
		}
		synctest.Wait()
		if told := sh.told(); strings.Contains(strings.Join(told, "\n"), "shared") {
			t.Errorf("told %q", told)
		}
	})
}

// TestSharedIdentityEnds: some minutes after the copy is gone the problem is over.
func TestSharedIdentityEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		both := []*twin{{addr: "10.0.0.1:1000", run: "a"}, {addr: "10.0.0.2:2000", run: "b"}}
		svc, gone := service(sh), make(chan struct{})
		stay := make(chan struct{})
		both[0].service, both[1].service = svc, svc
		go both[0].live(stay)
		time.Sleep(time.Second)
		go both[1].live(gone)
		time.Sleep(30 * time.Second)
		close(gone)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		told := sh.told()
		if last := told[len(told)-1]; last != "not shared" {
			t.Errorf("told %q", told)
		}
		close(stay)
		both[0].current.cancel()
		synctest.Wait()
	})
}

// TestSharedIdentityElsewhere: a machine whose health stream is refused is refused everything.
func TestSharedIdentityElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := newShard()
		both := []*twin{{addr: "10.0.0.1:1000", run: "a"}, {addr: "10.0.0.2:2000", run: "b"}}
		twins(t, sh, 10*time.Second, both...)
		s := newStream()
		defer s.cancel()
		ctx := both[1].caller(s)
		_, submitted := both[1].service.SubmitPublicKeys(ctx, &nstancev1.SubmitPublicKeysRequest{})
		_, renewed := both[1].service.RenewCertificate(ctx, &nstancev1.AgentServiceRenewCertificateRequest{})
		for what, err := range map[string]error{"keys": submitted, "a renewal": renewed} {
			if !errors.Is(err, rpc.IdentityShared) || !strings.Contains(err.Error(), "10.0.0.1") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestMalformedRun: a malformed header is refused, and the error names it.
func TestMalformedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.ctx = metadata.NewIncomingContext(s.ctx, metadata.Pairs("nstance-run", "x"))
		if err := serve(service(newShard()), s); !errors.Is(err, rpc.Invalid) || !strings.Contains(err.Error(), "nstance-run") {
			t.Errorf("ended with %v", err)
		}
	})
}
