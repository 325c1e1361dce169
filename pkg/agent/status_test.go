package agent_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/rpc"
)

func TestStatusText(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	expires := start.Add(24 * time.Hour)
	s := agent.Status{
		InstanceID: instanceID, Version: "1.2.3", PID: 42, StartedAt: start, UpdatedAt: start.Add(time.Minute),
		State: agent.StateConnected, ServerID: "spiffe://example/server/dev-1", CertificateSerial: "4f", CertificateExpiresAt: &expires,
		Server: "10.0.0.1:8994", Streams: map[string]string{agent.StreamHealth: "open", agent.StreamFiles: "not served"},
		LastReport: &agent.LastReport{Sequence: 7, At: start.Add(time.Minute)}, ConfigHash: "4fe1",
		Files: []agent.FileStatus{
			{Name: "a.conf", State: "present", SHA256: "4f"}, {Name: "b.crt", State: "present", ExpiresAt: &expires},
			{Name: "c.json", State: "failed", Error: "not JSON"}, {Name: "d.env", State: "missing"},
		},
	}
	for name, c := range map[string]struct {
		now     time.Time
		running bool
		want    string
	}{
		"running": {start.Add(2 * time.Minute), true, `Instance:     knd01h455vb4pex5vsknk084sn02q
Version:      1.2.3
Process:      42, for 2m0s
State:        connected
Belongs to:   spiffe://example/server/dev-1
Certificate:  serial 4f, expires in 23h58m0s (2026-01-03T03:04:05Z)
Server:       10.0.0.1:8994
Stream:       ReceiveFiles not served
Stream:       ReportHealth open
Last report:  number 7, 1m0s ago
Config hash:  4fe1
File:         a.conf present
File:         b.crt present, expires in 23h58m0s
File:         c.json failed: not JSON
File:         d.env missing
`},
		"dead": {expires.Add(time.Hour), false, `Instance:     knd01h455vb4pex5vsknk084sn02q
Version:      1.2.3
Process:      not running; what follows is from 24h59m0s ago
State:        connected
Belongs to:   spiffe://example/server/dev-1
Certificate:  serial 4f, EXPIRED 1h0m0s ago (2026-01-03T03:04:05Z)
Server:       10.0.0.1:8994
Stream:       ReceiveFiles not served
Stream:       ReportHealth open
Last report:  number 7, 24h59m0s ago
Config hash:  4fe1
File:         a.conf present
File:         b.crt present, EXPIRED 1h0m0s ago
File:         c.json failed: not JSON
File:         d.env missing
`},
	} {
		var out strings.Builder
		if err := s.WriteText(&out, c.now, c.running); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, out.String(), c.want)
		}
	}
}

func TestReadStatusOfNobody(t *testing.T) {
	if _, err := agent.ReadStatus(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestStatusFollowsTheStreams(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.sides = true })
		p := f.start(f.config())
		settle(time.Minute + time.Second)
		s := f.status()
		want := map[string]string{agent.StreamHealth: "open", agent.StreamKeys: "open", agent.StreamFiles: "open"}
		if fmt.Sprint(s.Streams) != fmt.Sprint(want) || s.CertificateExpiresAt == nil || s.CertificateSerial == "" ||
			!s.UpdatedAt.Equal(s.LastReport.At) {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}

// TestHealthEndpoint uses real time, because it needs a socket.
func TestHealthEndpoint(t *testing.T) {
	port := must(freeport.Find(1))(t)[0] // no connection takes it while it is free
	taken := must(net.Listen("tcp", freeport.Address(port)))(t)
	f := newFixture(t)
	c := f.config()
	c.HealthAddr = taken.Addr().String()
	err := agent.Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "NSTANCE_HEALTH_ADDR: "+c.HealthAddr+" is already in use") {
		t.Errorf("a taken port gives %v", err)
	}
	taken.Close()

	server := f.up("10.0.0.1")
	server.set(func() { server.register = refusing(rpc.Unavailable.Errorf("not yet")) })
	p := f.start(c)
	awaitHealth(t, c.HealthAddr, http.StatusServiceUnavailable, "registering\n")
	server.set(func() { server.register = server.grant })
	awaitHealth(t, c.HealthAddr, http.StatusOK, "connected\n")
	server.down()
	awaitHealth(t, c.HealthAddr, http.StatusServiceUnavailable, "connecting\n")
	p.end()
}

// awaitHealth waits up to a minute for exactly this response. The reason is not in it, because
// any caller may read it.
func awaitHealth(t *testing.T, addr string, code int, text string) {
	t.Helper()
	got := "nothing"
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		response, err := http.Get("http://" + addr + "/healthz")
		if err != nil {
			continue
		}
		body := string(must(io.ReadAll(response.Body))(t))
		response.Body.Close()
		if response.StatusCode == code && body == text {
			return
		}
		got = fmt.Sprint(response.StatusCode, " ", body)
	}
	t.Fatalf("answered %s, want %d and %q", got, code, text)
}
