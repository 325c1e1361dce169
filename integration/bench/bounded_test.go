package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRowHasABound: a row that takes too long ends with an error that says where it was, whether it
// can be cancelled or not, and keeps its measurements.
func TestRowHasABound(t *testing.T) {
	own := errors.New("the row's own")
	for _, tt := range []struct {
		name  string
		run   func(context.Context, chan struct{}) ([]figure, error)
		want  []string // in the error; empty: no error
		takes time.Duration
		had   int // figures
	}{
		{"in time", func(context.Context, chan struct{}) ([]figure, error) { return make([]figure, 2), nil }, nil, 0, 2},
		{"it fails", func(context.Context, chan struct{}) ([]figure, error) { return nil, own }, []string{"the row's own"}, 0, 0},
		{"it waits in vain", func(ctx context.Context, _ chan struct{}) ([]figure, error) {
			return make([]figure, 1), until(ctx, "pigs fly", time.Hour, func() bool { return false })
		}, []string{"not measured within 1m0s", "until (node.go:", "pigs fly"}, time.Minute, 1},
		{"it is deaf", func(_ context.Context, end chan struct{}) ([]figure, error) {
			return nil, deaf(end)
		}, []string{"not measured within 1m0s", "deaf (bounded_test.go:", "did not end in the 30s after that"}, 90 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end, began := make(chan struct{}), time.Now()
				r := row{name: "r", bound: time.Minute, run: func(ctx context.Context, _ *bench) ([]figure, error) { return tt.run(ctx, end) }}
				figures, err := (&bench{}).bounded(t.Context(), r)
				took := time.Since(began)
				close(end)
				if len(tt.want) == 0 != (err == nil) || len(figures) != tt.had || took < tt.takes || took > tt.takes+time.Second {
					t.Errorf("%d figures after %s: %v", len(figures), took, err)
				}
				for _, want := range tt.want {
					if err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("no %q in: %v", want, err)
					}
				}
			})
		})
	}
}

func deaf(end chan struct{}) error {
	<-end
	return nil
}

func TestEveryRowHasABound(t *testing.T) {
	for _, r := range rows(time.Minute) {
		if r.bound < time.Minute || r.bound > time.Hour {
			t.Errorf("row %s may take %s", r.name, r.bound)
		}
	}
}

// TestPopulationEnds, including the agents that were taken out of it, which otherwise continue.
func TestPopulationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPopulation(t.Context(), nil)
		m := &member{simulated: &simulated{id: "knd1"}, reported: true}
		ctx, stop := context.WithCancel(p.ctx)
		defer stop()
		m.stop = stop
		p.members[m.id] = m
		p.work.Go(func() { <-ctx.Done() })
		if p.take() != m {
			t.Fatal("it is not there")
		}
		p.close()
	})
}
