package election_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

// mutualTLS is one identity for both sides, as servers of a shard have it.
func mutualTLS(t *testing.T) *tls.Config {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
}

// httpServer serves an elector's handler over TLS on loopback.
func httpServer(t *testing.T, h http.Handler, c *tls.Config) *httptest.Server {
	t.Helper()
	return httpServerAt(t, freeport.Host+":0", h, c)
}

func httpServerAt(t *testing.T, addr string, h http.Handler, c *tls.Config) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener, s.TLS = l, c
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// stepClock goes on by a step at each look and not in between, so that it does not matter
// to an elector how long anything takes.
type stepClock struct{ looks atomic.Int64 }

func (c *stepClock) Now() election.Moment {
	mono := time.Duration(c.looks.Add(1)) * 10 * time.Millisecond
	return election.Moment{Mono: mono, Wall: time.Unix(0, 0).Add(mono)}
}

// newElector makes an elector that renews when it acts, and by itself only after longer
// than a test takes. clock nil: the system's.
func newElector(t *testing.T, store *mem.Store, holder, addr string, peers election.Dialer, clock election.Clock) *election.Elector {
	t.Helper()
	e, err := election.New(election.Config{
		Store: store, Key: key, Holder: holder, Addrs: election.Addrs{Election: addr}, Peers: peers, Clock: clock,
		Timing:     election.Timing{RenewInterval: 30 * time.Minute, LeaseDuration: time.Hour, FenceWindow: 10 * time.Millisecond},
		FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs e until stop, and says when it leads.
func run(t *testing.T, e *election.Elector) (leads <-chan *election.Term, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	terms, done := make(chan *election.Term, 10), make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx, func(ctx context.Context, term *election.Term) error {
			terms <- term
			<-ctx.Done()
			return nil
		})
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return terms, stop
}

func TestPeersOverHTTP(t *testing.T) {
	config := mutualTLS(t)
	dialer := election.NewHTTPDialer(config)
	store := mem.New(mem.Config{})
	handler := http.NotFoundHandler()
	a := httpServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As if the server's write timeout were over: it must not cut a stream.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now()); err != nil {
			t.Error(err)
		}
		handler.ServeHTTP(w, r)
	}), config)
	addr := a.Listener.Addr().String()
	e := newElector(t, store, "a", addr, dialer, &stepClock{})
	handler = e.Handler()
	leads, stop := run(t, e)
	term := <-leads

	s, err := dialer.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, err := s.Next()
	if err != nil || first.Server != "a" || first.Record == nil || first.Record.Epoch != 1 {
		t.Fatalf("first line is %+v %v", first, err)
	}
	told := errors.New("the renewal was told")
	for rev := first.Rev + 1; rev < first.Rev+4; rev++ {
		err := term.Act(t.Context(), func(context.Context) error { // one renewal is under way beside it
			l, err := s.Next()
			if err != nil || l.Rev != rev || l.ETag == "" {
				t.Fatalf("line is %+v %v, want rev %d", l, err, rev)
			}
			return told
		})
		if !errors.Is(err, told) {
			t.Fatal(err)
		}
	}
	b := newElector(t, store, "b", "127.0.0.1:1", dialer, nil)
	next, _ := run(t, b)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if r, ok := b.Leader(); ok && r.Holder == "a" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby does not see the leader")
		}
	}
	go stop()
	for {
		l, err := s.Next()
		if errors.Is(err, election.ErrClosed) {
			break
		}
		if err != nil {
			t.Fatalf("stream ended with %v, want closed", err)
		}
		first = l
	}
	if !first.Released {
		t.Errorf("last line is %+v, want the release", first)
	}
	if epoch := (<-next).Epoch(); epoch != 2 {
		t.Errorf("the standby leads epoch %d, want 2", epoch)
	}
	l := nextLine(t, dialer, addr)
	if l.Server != "a" || (l.Record != nil && !l.Released) {
		t.Errorf("after its release a answers %+v", l)
	}
}

func nextLine(t *testing.T, d election.Dialer, addr string) election.Line {
	t.Helper()
	s, err := d.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// How a connection ends decides whether it is a sign of death.
func TestDialerTellsDeathFromSilence(t *testing.T) {
	config := mutualTLS(t)
	dialer := election.NewHTTPDialer(config)
	store := mem.New(mem.Config{})
	e := newElector(t, store, "a", "", nil, nil)
	leads, _ := run(t, e)
	<-leads

	t.Run("killed", func(t *testing.T) {
		ports, err := freeport.Find(1) // one that nothing takes when its server is gone
		if err != nil {
			t.Fatal(err)
		}
		addr := freeport.Address(ports[0])
		a := httpServerAt(t, addr, e.Handler(), config)
		s, err := dialer.Dial(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		a.Listener.Close()
		a.CloseClientConnections()
		for err == nil {
			_, err = s.Next()
		}
		if !errors.Is(err, election.ErrClosed) {
			t.Errorf("stream ended with %v, want closed", err)
		}
		if _, err := dialer.Dial(t.Context(), addr); !errors.Is(err, election.ErrRefused) {
			t.Errorf("dialing again says %v, want refused", err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // the kernel accepts connections, which get no response
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = dialer.Dial(ctx, l.Addr().String())
		if err == nil || errors.Is(err, election.ErrRefused) || errors.Is(err, election.ErrClosed) {
			t.Errorf("dialing says %v, want a timeout", err)
		}
	})
	t.Run("stranger", func(t *testing.T) {
		a := httpServer(t, e.Handler(), config)
		stranger := config.Clone()
		stranger.Certificates = nil
		s, err := election.NewHTTPDialer(stranger).Dial(t.Context(), a.Listener.Addr().String())
		if err == nil {
			_, err = s.Next()
			s.Close()
		}
		if err == nil || errors.Is(err, election.ErrRefused) {
			t.Errorf("a client without certificate is told %v", err)
		}
	})
	t.Run("not ours", func(t *testing.T) {
		a := httpServer(t, http.NotFoundHandler(), config)
		if _, err := dialer.Dial(t.Context(), a.Listener.Addr().String()); err == nil {
			t.Error("a 404 is taken for an answer")
		}
	})
	t.Run("post", func(t *testing.T) {
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, election.LeaderPath, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST gets %d", w.Code)
		}
	})
}
