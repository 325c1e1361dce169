// Command deflake repeats the tests of packages under the race detector, in a new order each time,
// with as many packages in parallel as go test, and optionally under load. It ends after the round
// in which a package failed, and names those that did.
//
//	go run ./integration/deflake ./pkg/pki                     until it fails
//	go run ./integration/deflake -run TestCSR ./pkg/pki        some of its tests
//	go run ./integration/deflake -times 20 -load 2 ./...       every package, 20 times, beside two busy processes a core
//
// The output of each package's last run is kept in temp/deflake.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// busy is the argument that makes this program a process of the load.
const busy = "busy"

// options say how often packages are run, and how.
type options struct {
	run     string        // a pattern of test names; empty: all
	times   int           // rounds; 0: until a package fails
	load    int           // busy processes per core
	timeout time.Duration // for one package's run
	folder  string        // for test binaries and logs
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == busy {
		for n := uint64(1); n != 0; n++ { // covers the longest round
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o := options{folder: "temp/deflake"}
	flags := flag.NewFlagSet("deflake", flag.ContinueOnError)
	flags.StringVar(&o.run, "run", "", "run the tests that match this `pattern`")
	flags.IntVar(&o.times, "times", 0, "end after so many `rounds` without a failure; 0: never")
	flags.IntVar(&o.load, "load", 0, "how many busy `processes` for each core run beside")
	flags.DurationVar(&o.timeout, "timeout", 20*time.Minute, "of one package's run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.times < 0 || o.load < 0 || flags.NArg() == 0 {
		return errors.New("say which packages, as in: make deflake PKG=./pkg/pki [RUN=TestName] [TIMES=100], or ALL=1 for all; " +
			"neither -times nor -load can be negative")
	}
	all, err := build(ctx, out, o.folder, flags.Args())
	if err != nil {
		return err
	}
	unload, err := load(ctx, o.load*runtime.NumCPU())
	if err != nil {
		return err
	}
	defer unload()
	return rounds(ctx, out, o, all)
}

// rounds runs all packages in rounds, until one has failed or the number of rounds is reached.
func rounds(ctx context.Context, out io.Writer, o options, all []tested) error {
	for n := 1; o.times == 0 || n <= o.times; n++ {
		began := time.Now()
		errs := round(ctx, o, all)
		if ctx.Err() != nil {
			return fmt.Errorf("round %d: interrupted", n)
		}
		var failed []string
		for at, err := range errs {
			if err != nil {
				fmt.Fprintf(out, "round %d: %s: %v\n", n, all[at].name, err)
				failed = append(failed, fmt.Sprintf("  %s: %s", all[at].name, all[at].log(o.folder)))
			}
		}
		if len(failed) > 0 {
			return fmt.Errorf("round %d failed, after %d that passed; packages, and their output:\n%s", n, n-1, strings.Join(failed, "\n"))
		}
		fmt.Fprintf(out, "round %d passed in %.0fs\n", n, time.Since(began).Seconds())
	}
	return nil
}

// round runs all packages once, and returns the error of each.
func round(ctx context.Context, o options, all []tested) []error {
	errs := make([]error, len(all))
	var some errgroup.Group
	some.SetLimit(runtime.NumCPU())
	for at, p := range all {
		some.Go(func() error {
			errs[at] = p.run(ctx, o)
			return nil // the others still run
		})
	}
	_ = some.Wait()
	return errs
}

// load starts processes that only compute, until unload is called.
func load(ctx context.Context, processes int) (unload func(), err error) {
	ctx, unload = context.WithCancel(ctx)
	program, err := os.Executable()
	if err != nil {
		return unload, err
	}
	for range processes {
		cmd := exec.CommandContext(ctx, program, busy)
		if err := cmd.Start(); err != nil {
			unload()
			return unload, fmt.Errorf("start the load: %w", err)
		}
		go func() { _ = cmd.Wait() }() // it is killed
	}
	return unload, nil
}
