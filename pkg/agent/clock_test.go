package agent_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
)

// TestClockDiffers: an agent whose clock differs from the server's by more than a minute warns when it
// gets a certificate, and works.
func TestClockDiffers(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		0: "", 50 * time.Second: "", 10 * time.Minute: "ahead_by=10m0s", -10 * time.Minute: "ahead_by=-10m0s",
	} {
		withFixture(t, func(f *fixture) {
			f.up("10.0.0.1")
			var log strings.Builder
			c := f.config()
			c.Now = func() time.Time { return time.Now().Add(ahead) }
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			p := f.start(c)
			settle(15 * time.Second)
			if s := f.status(); s.State != agent.StateConnected {
				t.Errorf("%s ahead: status %+v", ahead, s)
			}
			p.end()
			const warning = "the clocks of this machine and of the server differ"
			if told := strings.Count(log.String(), warning); told > 1 || (told == 1) != (want != "") || !strings.Contains(log.String(), want) {
				t.Errorf("%s ahead: told %d times: %s", ahead, told, log.String())
			}
		})
	}
}
