package rpc_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestPausesEndBeforeThePeerGivesUp: a ping is answered within KeepaliveTimeout, whatever the
// connection is paused for.
func TestPausesEndBeforeThePeerGivesUp(t *testing.T) {
	for _, l := range []rpc.Limits{rpc.DefaultLimits(), rpc.OperatorLimits(), rpc.RegistrationLimits()} {
		if l.MaxPause <= 0 || l.MaxPause > rpc.KeepaliveTimeout*2/3 {
			t.Errorf("a pause lasts up to %s", l.MaxPause)
		}
	}
}

// TestTooFastForTooLong: a call that would have to wait too long is refused, and the
// connection continues.
func TestTooFastForTooLong(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.Opens = rpc.Rate{PerSecond: 0.01, Burst: 2}
	config.Limits.MaxPause = 50 * time.Millisecond
	conn := ours.dial(serve(t, config), ours.operator(time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, want := range []codes.Code{codes.Unimplemented, codes.Unimplemented, codes.ResourceExhausted, codes.ResourceExhausted} {
		if err := listGroups(ctx, conn); status.Code(err) != want {
			t.Errorf("call %d: %v, want %s", i, err, want)
		}
	}
}

// TestALookThatTakesLong: calls that need a slow lookup are refused, and the connection
// continues.
func TestALookThatTakesLong(t *testing.T) {
	ours := newAuthority(t, cluster)
	config := ours.config()
	config.Limits.MaxPause = 50 * time.Millisecond
	asked := make(chan struct{}, 100)
	config.Judge = judge{look: func(ctx context.Context, _ pki.Caller) error {
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	agent := nstancev1.NewAgentServiceClient(ours.dial(serve(t, config), ours.agent(time.Hour)))
	first, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := agent.SubmitPublicKeys(first, &nstancev1.SubmitPublicKeysRequest{})
		ended <- err
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 {
		if _, err := agent.SubmitPublicKeys(ctx, &nstancev1.SubmitPublicKeysRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("a call while the store is asked: %v, want UNAVAILABLE", err)
		}
	}
	if len(asked) != 0 {
		t.Error("the store was asked again")
	}
	leave()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the first: %v", err)
	}
}
