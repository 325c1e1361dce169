package aws_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// configured makes a machine's system have the address all the time, as the guide says for the
// address mode.
func configured(l *aws.Leader) {
	l.Local = func(context.Context, netip.Addr) (bool, error) { return true, nil }
}

// forEachFamily is forEachMode for the address mode only.
func forEachFamily(t *testing.T, test func(t *testing.T, m mode)) {
	t.Helper()
	forEachMode(t, func(t *testing.T, m mode) {
		if !m.byENI {
			test(t, m)
		}
	})
}

// TestLeaderStaleReads: a server that lost the address is not misled by a stale read, and gets it
// back at once.
func TestLeaderStaleReads(t *testing.T) {
	forEachFamily(t, func(t *testing.T, m mode) {
		s := newShard(t, m, func(cfg *awstest.Config) { cfg.Lag = 20 * time.Second })
		var hosts []host
		for range 2 {
			id := s.machine(t, large, tags())
			hosts = append(hosts, host{s.server(t, id, configured), id})
		}
		lost, took := hosts[0], hosts[1]
		for range 3 {
			time.Sleep(time.Minute) // until every read is current
			s.assign(t, lost)
			time.Sleep(time.Minute)
			s.assign(t, took)
			for range 5 {
				checks(t, lost, false)
			}
			s.assign(t, lost)
		}
	})
}

// TestLeaderMetadataFails: without the metadata service, nothing confirms a move.
func TestLeaderMetadataFails(t *testing.T) {
	forEachFamily(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		id := s.machine(t, large, tags())
		broken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
			_, _ = w.Write([]byte("session"))
		})
		h := host{s.server(t, id, func(l *aws.Leader) {
			configured(l)
			l.Metadata = serve(t, broken)
		}), id}
		for range 2 {
			if err := h.Assign(t.Context()); err == nil || !strings.Contains(err.Error(), "metadata service") {
				t.Errorf("assign: %v", err)
			}
			s.heldBy(t, id)
		}
		if held, err := h.Check(t.Context()); held || err == nil || !strings.Contains(err.Error(), "metadata service") {
			t.Errorf("check: %v, %v", held, err)
		}
		if n := len(s.changes()); n != len(modeFirst(m)) {
			t.Errorf("%d changes, want %d: what is there is not ordered again", n, len(modeFirst(m)))
		}
	})
}

// modeFirst are the changes of a move that finds the address unassigned.
func modeFirst(m mode) (out []string) {
	for _, action := range m.actions() {
		if !strings.HasPrefix(action, "Unassign") {
			out = append(out, action)
		}
	}
	return out
}
