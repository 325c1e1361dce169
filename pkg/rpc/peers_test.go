package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// holding serves streams of keys that stay open.
type holding struct {
	nstancev1.UnimplementedAgentServiceServer
}

func (holding) KeyGenRequests(_ *nstancev1.KeyGenRequestsRequest, stream nstancev1.AgentService_KeyGenRequestsServer) error {
	if err := stream.Send(&nstancev1.KeyGenRequestsResponse{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// held opens a stream that stays open, and returns its final error.
func held(t *testing.T, conn *grpc.ClientConn) (ended <-chan error) {
	t.Helper()
	stream, err := nstancev1.NewAgentServiceClient(conn).KeyGenRequests(t.Context(), &nstancev1.KeyGenRequestsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { _, err := stream.Recv(); end <- err }()
	return end
}

// TestTheNewestConnectionWins: exceeding the limit of an identity closes its oldest
// connection, and no other identity's.
func TestTheNewestConnectionWins(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.MaxConns = 2
	config.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, holding{}) }
	addr := serve(t, config)
	pair, otherPair := ours.agent(time.Hour), ours.agentNamed(otherInstance)
	other := held(t, ours.dial(addr, otherPair))
	var ends []<-chan error
	for range 6 {
		ends = append(ends, held(t, ours.dial(addr, pair)))
	}
	for i, end := range ends[:4] {
		select {
		case err := <-end:
			if status.Code(err) != codes.Unavailable {
				t.Errorf("connection %d ended with %v, want UNAVAILABLE", i, err)
			}
		case <-time.After(patience):
			t.Fatalf("connection %d outlives two newer ones", i)
		}
	}
	for i, end := range append(ends[4:], other) {
		select {
		case err := <-end:
			t.Errorf("of the newest two and another's, %d ended with %v", i, err)
		default:
		}
	}
}

// TestTheNewestOfACallerThatIsNoneWins: a certificate that passes the handshake but not the
// guard has the same limit.
func TestTheNewestOfACallerThatIsNoneWins(t *testing.T) {
	key := must(pki.GenerateKey(zeroes{}))(t)
	ours, other := authorityWithKey(t, cluster, key), authorityWithKey(t, "elsewhere", key)
	config := ours.config()
	config.Limits.MaxConns = 2
	bundle := pki.NewBundle(ours.ca.Certificate(), other.ca.Certificate())
	config.TLS = pki.Endpoint{Cluster: "elsewhere", Now: ours.clock.now, Source: pki.NewSource(bundle, ours.server(shard))}.Server()
	addr, pair := serve(t, config), other.agent(time.Hour)
	var conns []*rawClient
	for range 4 {
		c := ours.raw(addr, pair)
		c.call(1, nstancev1.AgentService_SubmitPublicKeys_FullMethodName)
		if got := c.answer(1); got != "16" { // UNAUTHENTICATED
			t.Fatalf("answered %q", got)
		}
		conns = append(conns, c)
	}
	conns[0].closed()
	conns[1].closed()
}

// TestOpeningStreamsIsPaced: a caller that continuously opens and closes streams is limited to
// its rate, however it spreads them, and others do not wait.
func TestOpeningStreamsIsPaced(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.Opens = rpc.Rate{PerSecond: 50, Burst: 10}
	addr := serve(t, config)
	pair, other := ours.agent(time.Hour), nstancev1.NewAgentServiceClient(ours.dial(addr, ours.agentNamed(otherInstance)))
	var opened atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	start := time.Now()
	for range 4 {
		agent := nstancev1.NewAgentServiceClient(ours.dial(addr, pair))
		go func() {
			for ctx.Err() == nil {
				if _, err := agent.SubmitPublicKeys(ctx, &nstancev1.SubmitPublicKeysRequest{}); status.Code(err) == codes.Unimplemented {
					opened.Add(1)
				}
			}
		}()
	}
	for opened.Load() < 30 { // 20 more than the burst
		_, err := other.SubmitPublicKeys(t.Context(), &nstancev1.SubmitPublicKeysRequest{})
		if status.Code(err) != codes.Unimplemented {
			t.Fatalf("another's call: %v", err)
		}
		time.Sleep(200 * time.Millisecond) // 5 a second, within the other caller's rate
	}
	stop()
	n, took := opened.Load(), time.Since(start)
	if most := 10 + 50*took.Seconds() + 1; float64(n) > most {
		t.Errorf("%d streams in %s, want at most %.0f", n, took, most)
	}
}

// flood starts n messages of 1 MiB and sends all but the last byte of each. It returns the
// answers, and a function that sends the last bytes of the unanswered ones.
func (a *authority) flood(t *testing.T, addr string, pair *pki.Keypair, n int) (answers <-chan *http.Response, finish func()) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: a.endpoint(pair).Client("127.0.0.1", shard), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	out, end := make(chan *http.Response, n), make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ask := func(method string, body io.Reader) *http.Request {
		request := must(http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+method, body))(t)
		request.Header.Set("Content-Type", "application/grpc")
		request.Header.Set("Te", "trailers")
		return request
	}
	// The first call opens the connection that the others share.
	first, err := transport.RoundTrip(ask(healthv1.Health_Check_FullMethodName, bytes.NewReader(make([]byte, 5))))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, first.Body)
	_ = first.Body.Close()
	for range n {
		request := ask(nstancev1.OperatorService_ListGroups_FullMethodName, io.MultiReader(&message{}, until{end}, &lastByte{}))
		go func() {
			response, err := transport.RoundTrip(request)
			if err != nil { // without an answer
				out <- &http.Response{Status: err.Error()}
				return
			}
			_ = response.Body.Close()
			out <- response
		}()
	}
	return out, func() { close(end) }
}

const flooded = 1<<20 - 64 // bytes of a message: one field of an unknown type

// message is a message without its last byte: field 100, length-delimited.
type message struct{ sent int }

func (m *message) Read(p []byte) (int, error) {
	head := []byte{0, 0, 0x0f, 0xff, 0xc0, 0xa2, 0x06, 0xbb, 0xff, 0x3f} // 5 bytes of prefix; tag 100, length flooded-5
	total := 5 + flooded - 1
	if m.sent == total {
		return 0, io.EOF
	}
	n := min(len(p), total-m.sent)
	clear(p[:n])
	if m.sent < len(head) {
		n = copy(p, head[m.sent:])
	}
	m.sent += n
	return n, nil
}

type until struct{ end <-chan struct{} }

func (u until) Read([]byte) (int, error) { <-u.end; return 0, io.EOF }

type lastByte struct{ sent bool }

func (l *lastByte) Read(p []byte) (int, error) {
	if l.sent {
		return 0, io.EOF
	}
	p[0], l.sent = 0, true
	return 1, io.EOF
}

// TestRefusedSendersFillNothing: a refused caller is refused before its messages arrive, and
// has sent at most one window per stream by then.
func TestRefusedSendersFillNothing(t *testing.T) {
	ours := newAuthority(t, cluster)
	revoked := rpc.CertificateRevoked.Errorf("operator %s is gone", operatorID)
	for _, c := range []struct {
		name string
		pair *pki.Keypair
		set  func(*rpc.ServerConfig)
		want string
	}{
		{"an agent", ours.agent(time.Hour), func(*rpc.ServerConfig) {}, "7"},
		{"one that memory knows as gone", ours.operator(time.Hour), func(c *rpc.ServerConfig) {
			c.Judge = judge{known: func(pki.Caller) (error, bool) { return revoked, true }}
		}, "16"},
		{"one that the store knows as gone", ours.operator(time.Hour), func(c *rpc.ServerConfig) {
			c.Judge = judge{look: func(context.Context, pki.Caller) error { return revoked }}
		}, "16"},
		{"any caller, of a standby", ours.operator(time.Hour), func(c *rpc.ServerConfig) { c.Gate = &seat{} }, "14"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := ours.config()
			config.Limits = rpc.OperatorLimits()
			c.set(&config)
			inner := &metered{Listener: must(rpc.Listen(t.Context(), "test", "127.0.0.1:0", rpc.Conns{}))(t)}
			addr := serveOn(t, config, inner)
			const conns, streams = 3, 100
			for range conns {
				answers, finish := ours.flood(t, addr, c.pair, streams)
				for range streams {
					if r := <-answers; r.Header.Get("Grpc-Status") != c.want {
						t.Fatalf("answered %v %v, want status %s", r.Status, r.Header, c.want)
					}
				}
				finish()
			}
			if got, most := inner.read.Load(), int64(conns*streams*(64<<10+1<<10)); got > most {
				t.Errorf("%d bytes were read, want at most %d", got, most)
			}
		})
	}
}

// metered counts the bytes read from its connections.
type metered struct {
	net.Listener
	read atomic.Int64
}

func (m *metered) Accept() (net.Conn, error) {
	conn, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return meteredConn{Conn: conn, read: &m.read}, nil
}

type meteredConn struct {
	net.Conn
	read *atomic.Int64
}

func (c meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// TestShareOfBytesUnderWay: concurrent messages of one identity, on any number of connections,
// are limited to its share, and all of it is freed.
func TestShareOfBytesUnderWay(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits = rpc.OperatorLimits()
	config.Limits.MaxHeld = 2 << 20 // room for one, and not for two
	config.Limits.MessageTimeout = patience
	config.Services = serving(func(context.Context) (*nstancev1.ListGroupsResponse, error) {
		return &nstancev1.ListGroupsResponse{}, nil
	})
	addr := serve(t, config)
	pair := ours.operator(time.Hour)
	const conns, streams = 3, 40
	all := make(chan *http.Response, conns*streams)
	finishes := make([]func(), conns)
	for i := range conns {
		answers, finish := ours.flood(t, addr, pair, streams)
		finishes[i] = finish
		go func() {
			for range streams {
				all <- <-answers
			}
		}()
	}
	for range conns*streams - 1 {
		if r := <-all; r.Header.Get("Grpc-Status") != "8" { // RESOURCE_EXHAUSTED
			t.Fatalf("answered %v, want RESOURCE_EXHAUSTED", r.Header)
		}
	}
	if err := listGroups(t.Context(), ours.dial(addr, pair)); err != nil {
		t.Errorf("a small call of the same identity: %v", err)
	}
	for _, finish := range finishes {
		finish()
	}
	<-all
	answers, finish := ours.flood(t, addr, pair, 1)
	finish()
	if r := <-answers; r.StatusCode != http.StatusOK || r.Header.Get("Grpc-Status") != "" { // otherwise it is in a trailer
		t.Errorf("the one that there is room for answered %v %v", r.Status, r.Header)
	}
}

// TestSmallMessagesAlwaysPass: while others have used up everything, a message of 16 KiB
// passes and a larger one does not.
func TestSmallMessagesAlwaysPass(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits = rpc.OperatorLimits()
	config.Limits.MaxHeldByAll = 1 << 20
	addr := serve(t, config)
	answers, finish := ours.flood(t, addr, ours.operator(time.Hour), 10)
	defer finish()
	operator := nstancev1.NewOperatorServiceClient(ours.dial(addr, ours.operatorNamed(otherOperator)))
	upsert := func(size int) codes.Code {
		_, err := operator.UpsertGroup(t.Context(), &nstancev1.UpsertGroupRequest{Key: string(make([]byte, size))})
		return status.Code(err)
	}
	if got := upsert(16<<10 - 8); got != codes.Unimplemented {
		t.Errorf("16 KiB answered %s while others send", got)
	}
	for range 10 { // a message of 1 MiB takes slightly more
		if r := <-answers; r.Header.Get("Grpc-Status") != "8" {
			t.Fatalf("answered %v, want RESOURCE_EXHAUSTED", r.Header)
		}
	}
	if got := upsert(512 << 10); got != codes.Unimplemented {
		t.Errorf("512 KiB answered %s when all has been given back", got)
	}
}

// TestTinyFrames: the memory of frames is counted, not their bytes, on client streams too: a message of fewer
// bytes than may be held is cut off.
func TestTinyFrames(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.MaxHeld = 128 << 10
	config.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, patient{}) }
	addr := serve(t, config)
	body := io.MultiReader(&drops{}, until{t.Context().Done()})
	response, err := ours.post(t, addr, ours.agent(time.Hour), nstancev1.AgentService_ReportHealth_FullMethodName, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Grpc-Status"); got != "1" && got != "8" { // cut off
		t.Errorf("grpc-status %q, want that the stream is cut off", got)
	}
}

// drops is a reader of 60 KiB of a message, one byte at a time.
type drops struct{ sent int }

func (d *drops) Read(p []byte) (int, error) {
	d.sent++
	switch {
	case d.sent <= 5:
		p[0] = []byte{0, 0, 0, 0xf0, 0}[d.sent-1]
	case d.sent == 5+60<<10:
		return 0, io.EOF
	default:
		p[0] = 0
	}
	return 1, nil
}

// TestManyReports: the bytes of a message stream are freed as they are read.
func TestManyReports(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.MaxHeld = 40 << 10
	read := make(chan struct{})
	config.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, reading{read: read}) }
	stream, err := nstancev1.NewAgentServiceClient(ours.dial(serve(t, config), ours.agent(time.Hour))).ReportHealth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := stream.Send(&nstancev1.ReportHealthRequest{ConfigHash: string(make([]byte, 20<<10))}); err != nil {
			t.Fatalf("report %d: %v", i, err)
		}
		select {
		case <-read:
		case <-time.After(patience):
			t.Fatalf("report %d was not read", i)
		}
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Error(err)
	}
}

type reading struct {
	nstancev1.UnimplementedAgentServiceServer
	read chan<- struct{}
}

func (r reading) ReportHealth(stream nstancev1.AgentService_ReportHealthServer) error {
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&nstancev1.ReportHealthResponse{})
		}
		if err != nil {
			return err
		}
		r.read <- struct{}{}
	}
}
