// Command ci runs the steps of continuous integration in order, and prints their costs, or what
// failed and how to repeat it.
//
//	go run ./integration/ci               the gate: what every change has to pass
//	go run ./integration/ci -all          everything, which takes long
//	FRESH=1 go run ./integration/ci       also what passed before with the same inputs
//	go run ./integration/ci -from e2e     that step and those after it
//	go run ./integration/ci -only lint    one step, or several separated by commas
//
// The output of each step is also kept in temp/ci/{step}.log.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == secluded {
		fmt.Fprintln(os.Stderr, seclude(os.Args[2:]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stdout, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ci", flag.ContinueOnError)
	all := flags.Bool("all", false, "run everything instead of the gate")
	from := flags.String("from", "", "start at this step")
	only := flags.String("only", "", "run only these steps, with commas between them")
	logs := flags.String("logs", "temp/ci", "the folder of the steps' logs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	command, of := "make ci", gate()
	if *all {
		command, of = "make ci-all", everything()
	}
	chosen, err := choose(of, *from, *only)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*logs, 0o755); err != nil {
		return err
	}
	env := os.Environ()
	switch {
	case !*all:
		fmt.Fprintln(out, "SKIPPED: what only make ci-all runs: all stories, the race detector, container engines, images, Nix and Terraform")
		env = append(env, "ENGINE=0")
	case engineAnswers(ctx):
		env = append(env, "ENGINE=1") // skipped parts have to be visible
	default:
		fmt.Fprintln(out, "SKIPPED: the stories on a container engine: none answers")
		env = append(env, "ENGINE=0")
	}
	canSeclude := canSeclude(ctx)
	if !canSeclude && hasLanes(chosen) {
		fmt.Fprintln(out, "SKIPPED: stories side by side: no network namespace can be made, so they run one after another")
	}
	began := time.Now()
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	r := runner{out: out, logs: *logs, env: env, canSeclude: canSeclude, name: command, folder: folder, memory: newMemory()}
	costs, err := r.runAll(ctx, chosen)
	printCosts(out, costs, time.Since(began))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "all steps passed in %.0fs\n", time.Since(began).Seconds())
	for _, c := range costs {
		for _, test := range c.byChance {
			fmt.Fprintf(out, "CHANCE: %s, first failure in %s\n", test, filepath.Join(*logs, c.name+".log"))
		}
	}
	return nil
}

func engineAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "info")
	cmd.Env = append(os.Environ(), "DOCKER_CONTEXT=default")
	return cmd.Run() == nil
}
