package mem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]mem.Config{
		"own etags":    {},
		"hashed etags": {HashETags: true},
		"small pages":  {PageSize: 7},
		"latency":      {Latency: time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			objecttest.Run(t, func(*testing.T) object.Store { return mem.New(cfg) })
		})
	}
}

// TestLatencyLosesReplies: ctx may end before or after the effect.
func TestLatencyLosesReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(mem.Config{Latency: 10 * time.Millisecond})
		for _, c := range []struct {
			timeout time.Duration
			want    error
		}{{3 * time.Millisecond, object.ErrNotFound}, {7 * time.Millisecond, nil}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			_, err := s.Put(ctx, "k", []byte("x"), object.IfAbsent())
			cancel()
			if !errors.Is(err, object.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("put cut off after %v: %v", c.timeout, err)
			}
			if _, err := s.Get(t.Context(), "k"); !errors.Is(err, c.want) {
				t.Errorf("get after a put cut off after %v: %v, want %v", c.timeout, err, c.want)
			}
		}
	})
}

func TestHashedETagRepeats(t *testing.T) {
	for _, hash := range []bool{false, true} {
		s := mem.New(mem.Config{HashETags: hash})
		a, _ := s.Put(t.Context(), "k", []byte("same"), object.Precondition{})
		b, _ := s.Put(t.Context(), "k", []byte("same"), object.Precondition{})
		if (a == b) != hash {
			t.Errorf("hashed %v: etags of equal bodies are %q and %q", hash, a, b)
		}
	}
}
