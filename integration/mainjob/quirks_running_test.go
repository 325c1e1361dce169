//go:build integration

package mainjob

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/integration/waits"
	"github.com/nstance/nstance/pkg/object/objecttest/quirks"
)

// quirkLasts is longer than a lease.
const quirkLasts = waits.Lease + 5*time.Second

// TestStoreTurnsQuirky: no machine is deleted when the store gets a quirk under a leader; the
// leader continues, or the log names what the store lacks or answers, as in the table of
// docs/storage.md; and a leader acts again when the quirk ends.
func TestStoreTurnsQuirky(t *testing.T) {
	slots := make(chan struct{}, 6) // they mostly wait
	for _, mode := range quirks.Modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			t.Cleanup(func() { <-slots })
			turnsQuirky(t, mode, quirkRow(t, mode)[1])
		})
	}
}

func turnsQuirky(t *testing.T, mode, want string) {
	s := newStack(t, "process")
	bucket := filepath.Join(s.temp, "dev-s3")
	log, health, store := s.serveQuirk("", bucket)
	leads := func() (bool, string) {
		code, body := get(health)
		n, records := s.machines("dev-1"), s.recordCount(bucket)
		return code == http.StatusOK && strings.Contains(body, "leading") && n == 2 && records >= 2,
			fmt.Sprintf("%d %s: %d machines, %d records", code, body, n, records)
	}
	s.eventually("the group is at its size", leads)
	machines := s.processes()
	store.Switch(mode)
	other := s.staysFor(quirkLasts, health, machines)
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if _, words, told := strings.Cut(want, "the log says: "); told {
		if !strings.Contains(string(said), words) {
			t.Errorf("the log does not say %q", words)
		}
	} else if other != "" {
		t.Errorf("the leader's health was %q; the table says %q", other, want)
	}
	store.Switch("")
	s.eventually("a leader is back", leads)
	if now := s.processes(); !slices.Equal(now, machines) {
		t.Fatalf("machines are now %q, were %q", now, machines)
	}
	s.kill("dev-1", filepath.Base(filepath.Dir(machines[0])))
	s.eventually("a machine that died is replaced", func() (bool, string) {
		now := s.processes()
		return len(now) == 2 && !slices.Contains(now, machines[0]) && s.machines("dev-1") == 2, fmt.Sprintf("%q", now)
	})
}

// staysFor fails if the set of machines changes within a time, and returns what the server's health
// was other than leading; empty: nothing else.
func (s *stack) staysFor(span time.Duration, health string, machines []string) (other string) {
	s.t.Helper()
	defer s.waits.For("nothing to happen")()
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // no event to wait for
		if now := s.processes(); !slices.Equal(now, machines) || s.machines("dev-1") != len(machines) {
			s.t.Fatalf("machines are now %q, %d of them alive, were %q", now, s.machines("dev-1"), machines)
		}
		if code, body := get(health); code != 0 && (code != http.StatusOK || !strings.Contains(body, "leading")) {
			other = fmt.Sprintf("%d %s", code, body)
		}
	}
	return other
}

// processes returns the sorted files of the machines' processes.
func (s *stack) processes() []string {
	files, err := filepath.Glob(filepath.Join(s.temp, "agents", "dev-1", "*", "pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}
