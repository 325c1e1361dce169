package election_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

// TestAskedBeforeRun: the address is open before the campaign starts, and another server calls
// at once. That must not prevent this one from campaigning.
func TestAskedBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := election.New(election.Config{
			Store: mem.New(mem.Config{Latency: latency}), Key: key, Holder: "a", Timing: defaults,
			FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, election.LeaderPath, nil))
		answer := strings.NewReader(`{"server":"b","leader":"a","ask":1,"ready":true}`)
		e.Answers().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, election.ReadyPath, answer))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		led := false
		err = e.Run(ctx, func(context.Context, *election.Term) error {
			led = true
			stop()
			return nil
		})
		if err != nil || !led {
			t.Errorf("led: %v, %v", led, err)
		}
	})
}
