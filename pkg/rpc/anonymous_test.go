package rpc_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// anonymous serves all callers, with these limits.
func (a *authority) anonymous(limits rpc.Limits) string {
	config := a.config()
	config.TLS = a.endpoint(a.server(shard)).RegistrationServer()
	config.Limits = limits
	return serve(a.t, config)
}

// TestUnfinishedMessage sends the beginning of a message and then nothing.
func TestUnfinishedMessage(t *testing.T) {
	ours := newAuthority(t, cluster)
	limits := rpc.RegistrationLimits()
	limits.CallTimeout = 100 * time.Millisecond
	addr := ours.anonymous(limits)
	body, message := io.Pipe()
	defer message.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request := must(http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+addr+nstancev1.RegistrationService_RegisterAgent_FullMethodName, body))(t)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	transport := &http.Transport{TLSClientConfig: ours.endpoint(nil).Client("127.0.0.1", shard), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	go func() { _, _ = message.Write([]byte{0, 0, 0, 0x3f, 0xff, 1, 2, 3}) }() // 3 bytes of 16383
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatalf("the call was not ended: %v", err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Grpc-Status"); got != "4" { // DEADLINE_EXCEEDED
		t.Errorf("grpc-status %q, want 4", got)
	}
}

func TestConnectionsAge(t *testing.T) {
	ours := newAuthority(t, cluster)
	limits := rpc.RegistrationLimits()
	limits.MaxConnectionAge, limits.ConnectionAgeGrace = 100*time.Millisecond, patience // which is for the call
	conn := ours.dial(ours.anonymous(limits), nil)
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the connection outlives its age")
	}
}

// TestNothingToHoldOpen: without a certificate no stream can be opened.
func TestNothingToHoldOpen(t *testing.T) {
	ours := newAuthority(t, cluster)
	conn := ours.dial(ours.anonymous(rpc.RegistrationLimits()), nil)
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("Watch answered %v, want UNIMPLEMENTED", err)
	}
}

// TestRegistrationLimits: each limit is enforced.
func TestRegistrationLimits(t *testing.T) {
	l := rpc.RegistrationLimits()
	if l.MaxStreams == 0 || l.MaxStreams > 10 || l.PerSource.PerSecond <= 0 || l.CallTimeout <= 0 || l.CallTimeout > time.Minute ||
		l.MaxConnectionAge <= 0 || l.MaxConnectionAge > time.Minute || l.ConnectionAgeGrace <= 0 || l.ConnectionAgeGrace > time.Minute {
		t.Errorf("%+v", l)
	}
}
