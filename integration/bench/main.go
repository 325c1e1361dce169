// Command bench prints every figure by which this project is measured, beside its target, as a
// table and as one JSON line per figure. It asserts nothing: a figure that misses its target is
// printed as such, with the profile that shows where the time or the memory went.
//
//	go run ./integration/bench           every row
//	go run ./integration/bench planner   a selection
//	go run ./integration/bench -siege-time 10s siege
//
// A part whose memory, CPU time or death is measured has to be a process of its own: this same
// program, started again in a role (see role.go and program.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func main() {
	testing.Init() // for the planner's row
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) > 2 && os.Args[1] == roleFlag {
		err = playRole(ctx, os.Args[2])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run measures the rows in names (none: all of them) and prints the measured figures even if some
// rows failed.
func run(ctx context.Context, names []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	siegeTime := flags.Duration("siege-time", time.Minute, "how long each attack of the row siege lasts")
	if err := flags.Parse(names); err != nil {
		return err
	}
	selected, err := choose(rows(*siegeTime), flags.Args())
	if err != nil {
		return err
	}
	b, err := newBench(progress)
	if err != nil {
		return err
	}
	defer b.close()
	b.siegeTime = *siegeTime
	b.describeMachine(ctx)
	var all []figure
	var failed []string
	for _, r := range selected {
		figures, err := b.measure(ctx, r)
		all = append(all, figures...)
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", r.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := printAll(out, all); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d rows could not be measured:\n%s", len(failed), strings.Join(failed, "\n"))
	}
	return nil
}

func choose(all []row, names []string) ([]row, error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, r := range all {
		known = append(known, r.name)
	}
	var out []row
	for _, name := range names {
		n := slices.Index(known, name)
		if n < 0 {
			return nil, fmt.Errorf("no row %q: want some of %s", name, strings.Join(known, ", "))
		}
		out = append(out, all[n])
	}
	return out, nil
}
