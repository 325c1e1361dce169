package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/rpc"
)

func TestLife(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		began := time.Now()
		p := f.start(f.config())
		settle(3*time.Minute + time.Second)

		got := server.seen()
		if len(got.registrations) != 1 || got.streams != 1 || len(got.reports) != 4 {
			t.Fatalf("%d registrations, %d streams, %d reports, want 1, 1 and 4", len(got.registrations), got.streams, len(got.reports))
		}
		r := got.registrations[0]
		if r.GetNonce() != nonce(cluster, shard) || r.GetHostname() != "web-1" || strings.Join(r.GetIps(), ",") != "10.0.1.7" {
			t.Errorf("registered with %v", r)
		}
		for i, report := range got.reports {
			at := time.Duration(i) * time.Minute
			if report.at.Sub(began) != at || report.GetUptime().AsDuration() != at || report.GetReportInterval().AsDuration() != time.Minute ||
				report.GetSequence() != uint64(i+1) ||
				report.GetVersion() != "1.2.3" || report.GetResources().GetCpuPercent() != 12.5 || report.GetShuttingDown() {
				t.Errorf("report %d came after %s: %v", i, report.at.Sub(began), report)
			}
		}
		if f.file("nonce.jwt") != "" || !strings.Contains(f.file("identity.crt"), "CERTIFICATE") ||
			f.file("server.id") != "spiffe://example/server/dev-1\n" {
			t.Errorf("nonce %q, certificate %q, server %q", f.file("nonce.jwt"), f.file("identity.crt"), f.file("server.id"))
		}
		if info := must(os.Stat(filepath.Join(f.dir, "identity.key")))(t); info.Mode() != 0o600 {
			t.Errorf("the key's mode is %s", info.Mode())
		}
		if s := f.status(); s.State != agent.StateConnected || s.Server != "10.0.0.1:8994" || s.LastReport.Sequence != 4 ||
			s.Streams[agent.StreamKeys] != "not served" {
			t.Errorf("status %+v", s)
		}

		if took := p.end(); took != 0 {
			t.Errorf("stopping took %s", took)
		}
		last := server.seen().reports[4]
		if !last.GetShuttingDown() || last.GetSequence() != 5 {
			t.Errorf("the last report is %v", last)
		}
		if s := f.status(); s.State != agent.StateStopped {
			t.Errorf("status after the end: %+v", s)
		}
	})
}

func TestRestartKeepsTheIdentity(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Second)
		p.end()
		key, cert := f.file("identity.key"), f.file("identity.crt")
		p = f.start(f.config())
		settle(time.Second)
		p.end()
		if got := server.seen(); len(got.registrations) != 1 || got.streams != 2 || len(got.reports) != 4 {
			t.Errorf("%d registrations, %d streams, %d reports, want 1, 2 and 4", len(got.registrations), got.streams, len(got.reports))
		}
		if f.file("identity.key") != key || f.file("identity.crt") != cert {
			t.Error("the restart changed the identity")
		}
	})
}

func TestServerRestart(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Minute + time.Second)
		server.down()
		settle(5 * time.Minute)
		if s := f.status(); s.State != agent.StateConnecting || s.Reason == "" {
			t.Errorf("status without a server: %+v", s)
		}
		// 0.6, 1.1, 2.1, 4.1 and then 5.1 s apart.
		if dials := f.dialed(); dials < 40 || dials > 80 {
			t.Errorf("%d dials in five minutes without a server", dials)
		}
		before := len(server.seen().reports)
		server.start()
		settle(10 * time.Second)
		got := server.seen()
		if len(got.reports) != before+1 || got.reports[before].GetSequence() != 3 {
			t.Errorf("%d reports after the restart, want one with the next number", len(got.reports)-before)
		}
		if s := f.status(); s.State != agent.StateConnected || s.Reason != "" {
			t.Errorf("status after the restart: %+v", s)
		}
		p.end()
	})
}

func TestFollowsTheLeader(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.up("10.0.0.1"), f.up("10.0.0.2")
		a.follow("10.0.0.2")
		p := f.start(f.config()) // configured with a only
		settle(time.Second)
		if len(b.seen().registrations) != 1 || len(b.seen().reports) != 1 || len(a.seen().reports) != 0 {
			t.Errorf("a %+v, b %+v", a.seen(), b.seen())
		}
		a.set(func() { a.leader = "" })
		b.follow("10.0.0.1")
		settle(10 * time.Second)
		// A report to a server that is not the leader uses up its sequence number.
		if got := a.seen(); len(got.reports) != 1 || got.reports[0].GetSequence() < 2 {
			t.Errorf("after the change a has %v", got.reports)
		}
		p.end()
		if got := a.seen().reports; len(got) != 2 || !got[1].GetShuttingDown() {
			t.Errorf("the last report did not reach the leader: %v", got)
		}
	})
}

// TestLeaderThatKeepsTheHeartbeat: a server lost the lead but not the health stream:
// NOT_LEADER on another stream is enough.
func TestLeaderThatKeepsTheHeartbeat(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.up("10.0.0.1"), f.up("10.0.0.2")
		a.set(func() { a.sides = true })
		p := f.start(f.config())
		settle(time.Second)
		a.set(func() { a.leader = "10.0.0.2"; a.sides = false })
		a.breakSides()
		settle(10 * time.Second)
		if len(b.seen().reports) != 1 {
			t.Errorf("the new leader has %d reports, want 1", len(b.seen().reports))
		}
		p.end()
	})
}

func TestSideStreamsAreHeldOpen(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.sides = true })
		p := f.start(f.config())
		settle(time.Hour)
		if got := server.seen(); got.sideCalls != 2 || got.sideOpen != 2 || got.streams != 1 {
			t.Errorf("%d side streams opened, %d open, %d health streams, want 2, 2 and 1", got.sideCalls, got.sideOpen, got.streams)
		}
		p.end()
		settle(0)
		if got := server.seen(); got.sideOpen != 0 {
			t.Errorf("%d side streams are open after the end", got.sideOpen)
		}
	})
}

func TestUnservedStreamsAreNotAskedTwice(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Hour)
		if got := server.seen(); got.sideCalls != 2 || got.streams != 1 {
			t.Errorf("%d calls of the other streams, %d health streams, want 2 and 1", got.sideCalls, got.streams)
		}
		p.end()
	})
}

func TestRevokedAgentAsksSeldom(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.revoked = rpc.CertificateRevoked.Errorf("the instance is deleting") })
		p := f.start(f.config())
		settle(time.Hour)
		if dials := f.dialed(); dials < 2 || dials > 70 {
			t.Errorf("%d dials in an hour", dials)
		}
		server.set(func() { server.revoked = nil })
		settle(2 * time.Minute)
		if len(server.seen().reports) == 0 {
			t.Error("an agent that is welcome again does not report")
		}
		p.end()
	})
}

func TestStopWithoutAServer(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		p := f.start(f.config())
		settle(time.Second)
		server.down()
		settle(time.Minute)
		if took := p.end(); took != 0 {
			t.Errorf("stopping took %s", took)
		}
	})
}

func TestStopWithAServerThatHangs(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.deaf = true })
		p := f.start(f.config())
		settle(time.Second)
		if took := p.end(); took != 2*time.Second {
			t.Errorf("stopping took %s, want 2s", took)
		}
	})
}

// TestAgentOfASharedIdentity: an agent that is refused because another machine keeps its
// identity reports that in its status, and retries about once a minute.
func TestAgentOfASharedIdentity(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		server.set(func() { server.revoked = rpc.IdentityShared.Errorf("another machine has the identity") })
		p := f.start(f.config())
		settle(time.Hour)
		if dials := f.dialed(); dials < 2 || dials > 70 {
			t.Errorf("%d dials in an hour", dials)
		}
		if s := f.status(); s.State != agent.StateConnecting || !strings.Contains(s.Reason, "another machine has the identity") {
			t.Errorf("the status is %s: %s", s.State, s.Reason)
		}
		server.set(func() { server.revoked = nil })
		settle(2 * time.Minute)
		if len(server.seen().reports) == 0 {
			t.Error("an agent that has its identity for itself does not report")
		}
		p.end()
	})
}

// TestRuns: all streams of a process send one run ID, and those of another process another.
func TestRuns(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		for range 2 {
			p := f.start(f.config())
			settle(time.Second)
			server.down()
			server.start()
			settle(time.Minute)
			p.end()
		}
		runs := server.seen().runs
		if len(runs) != 4 || runs[0] == "" || runs[0] != runs[1] || runs[2] != runs[3] || runs[0] == runs[2] {
			t.Errorf("the streams of two processes, two of each, name %q", runs)
		}
	})
}
