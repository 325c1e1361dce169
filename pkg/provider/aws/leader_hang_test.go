package aws_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// hung is a call that nobody answers.
func hung() awsfake.Fault { return awsfake.Fault{Delay: time.Hour} }

// TestLeaderCheckHangs: a look that is not answered ends soon, and is no answer.
func TestLeaderCheckHangs(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		a := s.host(t)
		s.assign(t, a)
		s.FailNext("DescribeNetworkInterfaces", 1, hung())
		begin := time.Now()
		if held, err := a.Check(t.Context()); err == nil || held || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("check: %v, %v", held, err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		checks(t, a, true)
	})
}

// TestLeaderStepHangs: one call that is not answered, whichever it is, ends no move.
func TestLeaderStepHangs(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		for _, action := range append(m.actions(), "DescribeNetworkInterfaces") {
			s := newShard(t, m, nil)
			a, b := s.host(t), s.host(t)
			s.assign(t, a)
			asked := false
			ctx := provider.WithGuard(t.Context(), func(context.Context) error {
				if !asked {
					s.FailNext(action, 1, hung())
				}
				asked = true
				return nil
			})
			begin := time.Now()
			if err := b.Assign(ctx); err != nil {
				t.Fatalf("%s: %v", action, err)
			}
			if took := time.Since(begin); took < 9*time.Second || took > 25*time.Second {
				t.Errorf("%s: it took %v", action, took)
			}
			s.heldBy(t, b.id)
		}
	})
}

// TestLeaderGuardHangs: who may not be asked in time forbids nothing for good.
func TestLeaderGuardHangs(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		a, b := s.host(t), s.host(t)
		s.assign(t, a)
		asked := 0
		ctx := provider.WithGuard(t.Context(), func(ctx context.Context) error {
			if asked++; asked > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err := b.Assign(ctx); err != nil {
			t.Fatal(err)
		}
		s.heldBy(t, b.id)
	})
}

// TestLeaderBeginHangs: a first look that is not answered costs a failover seconds.
func TestLeaderBeginHangs(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		a, b := s.host(t), s.host(t)
		s.assign(t, a)
		s.FailNext("DescribeNetworkInterfaces", 1, hung())
		begin := time.Now()
		if err := b.Assign(t.Context()); err != nil {
			s.assign(t, b) // as the server does
		}
		if took := time.Since(begin); took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
		s.heldBy(t, b.id)
	})
}
