package aws_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// hung is a call without a reply.
func hung() awstest.Fault { return awstest.Fault{Delay: time.Hour} }

// TestLeaderCheckHangs: a check without a reply ends soon, with an error.
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

// TestLeaderStepHangs: no single call without a reply makes a move fail.
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

// TestLeaderGuardHangs: a guard that does not answer in time does not stop the move for good.
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

// TestLeaderBeginHangs: a first read without a reply delays a failover by seconds only.
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

// TestLeaderAttachmentThatHangs: an attachment that does not complete is abandoned, and another
// index is tried.
func TestLeaderAttachmentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, modes()[0], func(cfg *awstest.Config) { cfg.Attach = 24 * time.Hour })
		h := s.host(t)
		if err := h.Assign(t.Context()); err == nil || !strings.Contains(err.Error(), "attaching") {
			t.Errorf("%v, want that it is attaching", err)
		}
		if detached, attached := len(s.Calls("DetachNetworkInterface")), len(s.Calls("AttachNetworkInterface")); detached != 1 || attached != 2 {
			t.Errorf("%d detaches and %d attaches, want 1 and 2", detached, attached)
		}
		all := s.Interfaces()
		if n := slices.IndexFunc(all, func(i awstest.Interface) bool { return i.ID == s.eni }); all[n].Index != 2 {
			t.Errorf("it is at the index %d, want 2", all[n].Index)
		}
	})
}
