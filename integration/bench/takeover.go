package main

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/nstance/nstance/pkg/object"
)

const (
	takeoverRuns   = 3
	takeoverTarget = 2 // s, of 10,000 records
)

// measureTakeover measures takeovers beyond the wait: from when the new leader leads until its
// first create call, with a cache in which each record is outdated.
func measureTakeover(ctx context.Context, b *bench) ([]figure, error) {
	var out []figure
	for _, records := range []int{200, 1000, 10_000} {
		name := fmt.Sprintf("takeover_%d_changed", records)
		took, err := b.takeovers(ctx, name, records)
		if err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
		f := newFigure(name, took.at(1).Seconds(), "s", takeoverRuns).noted("fastest %.2f s", took.at(0).Seconds())
		if records == 10_000 {
			f = f.atMost(takeoverTarget)
		}
		b.judge(ctx, name, []figure{f})
		out = append(out, f)
	}
	return out, nil
}

func (b *bench) takeovers(ctx context.Context, name string, records int) (took spread, err error) {
	r, err := b.newRivals(ctx, name, records, 0)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for range takeoverRuns {
		t, old, err := r.strike(ctx, syscall.SIGTERM, rewrite)
		if old != nil {
			old.kill()
		}
		if err != nil {
			return nil, err
		}
		took = append(took, t.acted-t.leads)
	}
	return took, nil
}

// rewrite gives each record another etag.
func rewrite(ctx context.Context, r *rivals, _ *child) error {
	store, err := openS3(r.endpoint)
	if err != nil {
		return err
	}
	infos, err := object.All(ctx, store, "instance/"+shardID+"/")
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	for _, info := range infos {
		work.Go(func() error {
			o, err := store.Get(ctx, info.Key)
			if err != nil {
				return err
			}
			_, err = store.Put(ctx, info.Key, append(o.Body, '\n'), object.Precondition{})
			return err
		})
	}
	return work.Wait()
}
