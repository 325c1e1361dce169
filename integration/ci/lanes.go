package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// lanes groups steps for execution one after the other: each element is one step, or lanes that run
// concurrently, each with its steps in order. A step runs by itself, not secluded, if no other step
// of its lane and no other lane was selected.
func lanes(chosen []step, canSeclude bool) (phases [][][]step) {
	for n := 0; n < len(chosen); {
		after := n + 1
		for chosen[n].lane != "" && after < len(chosen) && chosen[after].lane != "" {
			after++
		}
		phases = append(phases, sideBySide(chosen[n:after], canSeclude)...)
		n = after
	}
	return phases
}

func sideBySide(together []step, canSeclude bool) [][][]step {
	var byLane [][]step
	for _, s := range together {
		at := slices.IndexFunc(byLane, func(lane []step) bool { return lane[0].lane == s.lane })
		if at < 0 {
			byLane = append(byLane, nil)
			at = len(byLane) - 1
		}
		byLane[at] = append(byLane[at], s)
	}
	if canSeclude && len(byLane) > 1 {
		for _, lane := range byLane {
			for n := range lane {
				lane[n].beside = true
			}
		}
		return [][][]step{byLane}
	}
	var phases [][][]step
	for _, s := range together {
		s.secluded = false
		phases = append(phases, [][]step{{s}})
	}
	return phases
}

func hasLanes(chosen []step) bool {
	return slices.ContainsFunc(lanes(chosen, true), func(phase [][]step) bool { return len(phase) > 1 })
}

// runAll runs steps until one fails, and returns their costs. Of lanes that run side by side all
// steps are run, as their results are useful too, but for those that need one that failed.
func (r runner) runAll(ctx context.Context, chosen []step) (costs []cost, err error) {
	for _, phase := range lanes(chosen, r.canSeclude) {
		of, err := r.runPhase(ctx, phase)
		costs = append(costs, of...)
		if err != nil {
			return costs, err
		}
	}
	return costs, nil
}

func (r runner) runPhase(ctx context.Context, phase [][]step) (costs []cost, err error) {
	if len(phase) == 1 {
		s := phase[0][0]
		c, err := r.run(ctx, s, r.out)
		if err != nil {
			err = r.failure(s, err)
		}
		return []cost{c}, err
	}
	fmt.Fprintf(r.out, "\nside by side, each shown when it has ended: %s\n", names(phase))
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, lane := range phase {
		all.Go(func() {
			failed := map[string]bool{}
			for _, s := range lane {
				if failed[s.needs] {
					continue
				}
				var shown bytes.Buffer
				c, stepErr := r.run(ctx, s, &shown)
				mu.Lock()
				_, _ = shown.WriteTo(r.out)
				costs = append(costs, c)
				if stepErr != nil {
					err = errors.Join(err, r.failure(s, stepErr))
				}
				mu.Unlock()
				failed[s.name] = stepErr != nil
			}
		})
	}
	all.Wait()
	return costs, err
}

// names joins the names of lanes.
func names(phase [][]step) string {
	var all []string
	for _, lane := range phase {
		var of []string
		for _, s := range lane {
			of = append(of, s.name)
		}
		all = append(all, strings.Join(of, ", then "))
	}
	return strings.Join(all, "; ")
}
