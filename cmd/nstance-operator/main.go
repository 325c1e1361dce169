// Command nstance-operator runs Nstance as an infrastructure provider of Cluster API, for one
// tenant of one cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nstance/nstance/pkg/garbage"
	"github.com/nstance/nstance/pkg/operator"
	"github.com/nstance/nstance/pkg/operator/settings"
	"github.com/nstance/nstance/pkg/signals"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	s, err := settings.Parse(args, settings.World{Getenv: os.Getenv, ReadFile: os.ReadFile, Output: stderr})
	var flags *settings.FlagError
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &flags):
		return 2 // already reported
	case err != nil:
		fmt.Fprintf(stderr, "nstance-operator: invalid settings:\n%v\n", err)
		return 2
	case s.ShowVersion:
		fmt.Fprintln(stdout, "nstance-operator", version)
		return 0
	}
	signals.OutliveReaders()
	ctx, stop := signals.Stop(context.Background())
	defer stop()
	if s.Probe != "" {
		if err := operator.Probe(ctx, s.Probe, stdout); err != nil {
			fmt.Fprintln(stderr, "nstance-operator:", err)
			return 1
		}
		return 0
	}
	go garbage.Govern(ctx)
	if err := operator.Process(ctx, s, version); err != nil {
		fmt.Fprintln(stderr, "nstance-operator:", err)
		return 1
	}
	return 0
}
