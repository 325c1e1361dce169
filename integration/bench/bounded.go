package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// endPatience bounds the wait for a row that was cancelled.
const endPatience = 30 * time.Second

// bounded runs a row within its time limit. A row that takes longer is cancelled, and its error
// says where it was. If it does not end even then it is abandoned, so that the other rows are still
// measured.
func (b *bench) bounded(ctx context.Context, r row) ([]figure, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	bound := time.NewTimer(r.bound)
	defer bound.Stop()
	ended := make(chan outcome, 1)
	go b.play(ctx, r, ended)
	select {
	case o := <-ended:
		return o.figures, o.err
	case <-ctx.Done():
		return outcomeSoon(ended, context.Cause(ctx))
	case <-bound.C:
	}
	late := fmt.Errorf("%w: not measured within %s; it was in %s", errTooLate, r.bound, whereabouts())
	cancel(late)
	return outcomeSoon(ended, late)
}

// outcome is the result of a row.
type outcome struct {
	figures []figure
	err     error
}

// play runs a row. whereabouts finds the goroutine by the name of this function.
func (b *bench) play(ctx context.Context, r row, ended chan<- outcome) {
	figures, err := r.run(ctx, b)
	ended <- outcome{figures, err}
}

// outcomeSoon returns the outcome of a cancelled row, with the reason.
func outcomeSoon(ended <-chan outcome, why error) ([]figure, error) {
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	select {
	case o := <-ended:
		if errors.Is(o.err, why) {
			return o.figures, o.err
		}
		return o.figures, errors.Join(why, o.err)
	case <-patience.C:
		return nil, fmt.Errorf("%w; it did not end in the %s after that, and is in %s", why, endPatience, whereabouts())
	}
}

// ownFrame matches a call within this package, whose name is its path in tests.
var ownFrame = regexp.MustCompile(`(?m)^(?:main|\S+/integration/bench)\.(.*)\([^()]*\)\n\t(\S+):(\d+)`)

// whereabouts returns the functions of this package on the row's stack, the innermost first.
func whereabouts() string {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(stack, ".(*bench).play(") {
			continue
		}
		var frames []string
		for _, f := range ownFrame.FindAllStringSubmatch(stack, -1) {
			if f[1] == "(*bench).play" {
				break
			}
			frames = append(frames, fmt.Sprintf("%s (%s:%s)", f[1], filepath.Base(f[2]), f[3]))
		}
		return strings.Join(frames, " of ")
	}
	return "no function of its own"
}
