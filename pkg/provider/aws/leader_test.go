package aws_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// forEachMode runs a test in each mode, in simulated time.
func forEachMode(t *testing.T, test func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, m) }) })
	}
}

// TestLeaderMoves: there and back, also from a machine that is gone.
func TestLeaderMoves(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		a, b := s.host(t), s.host(t)
		checks(t, a, false)
		s.assign(t, a)
		checks(t, a, true)
		checks(t, b, false)
		before, begin := len(s.changes()), time.Now()
		s.assign(t, a)
		if n := len(s.changes()) - before; n != 0 {
			t.Errorf("taken again it takes %d changes", n)
		}
		s.assign(t, b)
		checks(t, a, false)
		checks(t, b, true)
		if took := time.Since(begin); m.byENI && took > 10*time.Second || !m.byENI && took > time.Second {
			t.Errorf("it took %v", took)
		}
		var made []string
		for _, c := range s.changes()[before:] {
			made = append(made, c.Action)
		}
		if !slices.Equal(made, m.actions()) {
			t.Errorf("a move made the calls %v, want %v", made, m.actions())
		}
		if err := s.Kill(b.id, "Server.InternalError", "the host died"); err != nil {
			t.Fatal(err)
		}
		s.assign(t, a)
		if s.log.count("force") != 0 {
			t.Error("something was taken by force")
		}
	})
}

// TestLeaderByForce: a hanging machine loses the interface, and its device index.
func TestLeaderByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, modes()[2], nil)
		a, b := s.host(t), s.host(t)
		s.assign(t, a)
		if err := s.Hang(a.id); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		s.assign(t, b)
		if took := time.Since(begin); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		if s.log.count("level=WARN") != 1 || s.log.count(a.id) != 1 {
			t.Error("the log does not say once from whom it was taken by force")
		}
		s.assign(t, a)
		all := s.Interfaces()
		if n := slices.IndexFunc(all, func(i awstest.Interface) bool { return i.ID == s.eni }); all[n].Index != 2 {
			t.Errorf("it is back at the index %d, want 2", all[n].Index)
		}
	})
}

// TestLeaderWhileDetaching: a detachment by another server is waited for, then forced.
func TestLeaderWhileDetaching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, modes()[0], nil)
		a, b, c := s.host(t), s.host(t), s.host(t)
		s.assign(t, a)
		if err := s.Hang(a.id); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := b.Assign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
		s.assign(t, c)
		if n := len(s.Calls("DetachNetworkInterface")); n != 2 {
			t.Errorf("%d detaches, want that of the first server and one by force", n)
		}
	})
}

// TestLeaderFaults: temporary errors are retried, and lost replies are recovered.
func TestLeaderFaults(t *testing.T) {
	for name, fault := range map[string]awstest.Fault{
		"lost": {Lost: true}, "dropped": {Dropped: true}, "throttled": {Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable},
		"broken": {Code: "InternalError", Status: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			forEachMode(t, func(t *testing.T, m mode) {
				s := newShard(t, m, nil)
				a, b := s.host(t), s.host(t)
				s.assign(t, a)
				for _, action := range m.actions() {
					s.FailNext(action, 2, fault)
				}
				s.FailNext("DescribeNetworkInterfaces", 1, fault)
				s.assign(t, b)
				checks(t, b, true)
			})
		})
	}
}

// TestLeaderOvertaken: after an error because another server was faster, the state is read again.
func TestLeaderOvertaken(t *testing.T) {
	for _, c := range []struct{ action, code string }{
		{"DetachNetworkInterface", "InvalidAttachmentID.NotFound"}, {"DetachNetworkInterface", "IncorrectState"},
		{"AttachNetworkInterface", "InvalidNetworkInterface.InUse"}, {"AttachNetworkInterface", "IncorrectState"},
		{"UnassignIpv6Addresses", "InvalidParameterValue"}, {"AssignIpv6Addresses", "InvalidIPAddress.InUse"},
		{"AssignIpv6Addresses", "InvalidParameterValue"},
	} {
		t.Run(c.action+" "+c.code, func(t *testing.T) {
			forEachMode(t, func(t *testing.T, m mode) {
				if !slices.Contains(m.actions(), c.action) {
					return
				}
				s := newShard(t, m, nil)
				a, b := s.host(t), s.host(t)
				s.assign(t, a)
				s.FailNext(c.action, 1, awstest.Fault{Code: c.code, Status: http.StatusBadRequest})
				s.assign(t, b)
			})
		})
	}
}

// TestLeaderReadsFail: failures of reads beyond the SDK's retries abort nothing.
func TestLeaderReadsFail(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		a, b := s.host(t), s.host(t)
		s.assign(t, a)
		ctx := provider.WithGuard(t.Context(), func(context.Context) error {
			s.FailNext("DescribeNetworkInterfaces", 7, awstest.Fault{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable})
			return nil
		})
		if err := b.Assign(ctx); err != nil {
			t.Fatal(err)
		}
		s.heldBy(t, b.id)
	})
}

// TestLeaderLag: stale reads mislead no server for long.
func TestLeaderLag(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, func(cfg *awstest.Config) { cfg.Lag = 4 * time.Second })
		a, b := s.host(t), s.host(t)
		time.Sleep(5 * time.Second) // until every read is current
		s.assign(t, a)
		for range 5 {
			time.Sleep(5 * time.Second)
			checks(t, a, true)
			before := len(s.changes())
			s.assign(t, b)
			if n := len(s.changes()) - before; !m.byENI && n != len(m.actions()) {
				t.Errorf("a move took %d changes, want %d: what was ordered is not ordered again", n, len(m.actions()))
			}
			time.Sleep(5 * time.Second)
			checks(t, a, false)
			s.assign(t, a)
		}
		if s.log.count("force") != 0 {
			t.Error("something was taken by force")
		}
	})
}

// TestLeaderDenied: the missing action is named at once.
func TestLeaderDenied(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		for _, action := range append(m.actions(), "DescribeNetworkInterfaces") {
			s := newShard(t, m, nil)
			a, b := s.host(t), s.host(t)
			s.assign(t, a)
			before := len(s.Calls(action))
			s.FailNext(action, 1, awstest.Fault{Code: "UnauthorizedOperation", Status: http.StatusForbidden, Message: "You are not authorized."})
			err := b.Assign(t.Context())
			if !errors.Is(err, provider.ErrUnauthorized) || !strings.Contains(err.Error(), "ec2:"+action+" is not allowed") {
				t.Errorf("%s: %v", action, err)
			}
			if n := len(s.Calls(action)) - before; n != 1 {
				t.Errorf("%s: %d calls", action, n)
			}
		}
	})
}

// TestLeaderGuard: each change needs the guard's permission.
func TestLeaderGuard(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		for permits := range m.actions() {
			s := newShard(t, m, nil)
			a, b := s.host(t), s.host(t)
			s.assign(t, a)
			before, asked := len(s.changes()), 0
			ctx := provider.WithGuard(t.Context(), func(context.Context) error {
				if asked++; asked > permits {
					return errNotLeader
				}
				return nil
			})
			if err := b.Assign(ctx); !errors.Is(err, errNotLeader) {
				t.Errorf("against the guard: %v", err)
			}
			if n := len(s.changes()) - before; n != permits || asked != permits+1 {
				t.Errorf("%d changes after %d questions, want %d", n, asked, permits)
			}
		}
	})
}

// TestLeaderNotConfigured: an address that the system does not use is no success.
func TestLeaderNotConfigured(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		id := s.machine(t, large, tags())
		deaf := s.server(t, id, func(l *aws.Leader) {
			l.Local = func(context.Context, netip.Addr) (bool, error) { return false, nil }
		})
		err := deaf.Assign(t.Context())
		if err == nil || !strings.Contains(err.Error(), "docs/providers/aws.md#an-address-that-follows-the-leader") {
			t.Errorf("assign: %v", err)
		}
		checks(t, host{deaf, id}, false)
		broken := s.server(t, id, func(l *aws.Leader) {
			l.Local = func(context.Context, netip.Addr) (bool, error) { return false, errors.New("no sockets left") }
		})
		if _, err := broken.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "no sockets left") {
			t.Errorf("check: %v", err)
		}
	})
}

// TestLeaderSockets: by default, an address is local if a socket can be bound to it.
func TestLeaderSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mode{ipv4: netip.MustParseAddr("127.0.1.100")}
		s := newShard(t, m, func(cfg *awstest.Config) {
			cfg.Subnets[0].CIDR = netip.MustParsePrefix("127.0.1.0/24")
			cfg.Subnets[1].CIDR = netip.MustParsePrefix("192.0.2.0/24") // held by no server
		})
		id := s.machine(t, large, tags())
		sockets := func(l *aws.Leader) { l.Local = nil }
		s.assign(t, host{s.server(t, id, sockets), id})
		s.mode.ipv4 = netip.MustParseAddr("192.0.2.100")
		id = s.machine(t, small, tags())
		if err := s.server(t, id, sockets).Assign(t.Context()); err == nil || !strings.Contains(err.Error(), "192.0.2.100") {
			t.Errorf("an address that this machine has not: %v", err)
		}
		s.heldBy(t, id)
	})
}

// TestLeaderSelf: the metadata service identifies this instance.
func TestLeaderSelf(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "")
	for name, c := range map[string]struct {
		service func(s *shard, id string) http.Handler
		says    string // empty: no error
	}{
		"metadata": {func(s *shard, id string) http.Handler { return s.Metadata(id) }, ""},
		"missing":  {func(*shard, string) http.Handler { return http.NotFoundHandler() }, "--self"},
		"nonsense": {func(*shard, string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
				_, _ = w.Write([]byte("i-mine"))
			})
		}, `"i-mine"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShard(t, modes()[0], nil)
				h := s.host(t)
				client := serve(t, c.service(s, h.id))
				asked := s.server(t, h.id, func(l *aws.Leader) { l.Self, l.Metadata = "", client })
				err := asked.Assign(t.Context())
				if c.says == "" && err == nil {
					s.heldBy(t, h.id)
					checks(t, host{asked, h.id}, true)
				} else if c.says == "" || err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("assign: %v; want an error that says %q", err, c.says)
				}
			})
		})
	}
}
