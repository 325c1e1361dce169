package reconcile_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/problems"
)

// A poll of a sweep that fails is retried soon, and reported once.
func TestFailedQuestionOfASweepIsRepeated(t *testing.T) {
	t.Run("takeover", func(t *testing.T) {
		bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
			p := s.unanswered(true)
			s.size(web, 3)
			s.lead()
			pass(time.Minute)
			ids := s.expectRunning(web, 3)
			_ = s.stop()
			s.world.Vanish(ids[0])
			p.silence(time.Second)
			s.lead()
			pass(4 * time.Second)
			if n := s.creates() - 3; n != 1 {
				t.Errorf("%d replacements, want 1 soon after the provider answers", n)
			}
		})
	})
	t.Run("sweep", func(t *testing.T) {
		bubble(t, fake.Config{}, func(t *testing.T, s *shard) {
			p := s.unanswered(true)
			s.size(web, 30)
			s.lead()
			pass(3 * time.Minute)
			s.expectRunning(web, 30)
			p.setBlind(true)
			p.silence(100 * time.Second) // with a sweep after 90 s
			pass(99 * time.Second)
			if told := s.reported(problems.ReasonProvider); len(told) == 0 || len(told) > 2 {
				t.Errorf("%d problems told, want one of the sweep and one of its repetition: %v", len(told), told)
			}
			if n := p.calls.Load(); n < 5 || n > 50 {
				t.Errorf("%d calls in 9 s: want repetitions that back off", n)
			}
			p.setBlind(false)
			pass(10 * time.Second)
			if s.creates() != 30 || s.deletes() != 0 || s.term.held().Message != "" {
				t.Errorf("%d creates, %d deletes, held %+v", s.creates(), s.deletes(), s.term.held())
			}
		})
	})
}
