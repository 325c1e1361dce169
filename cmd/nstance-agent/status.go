package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/agent"
)

// status prints the state of the agent on this machine.
func status(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("nstance-agent status", flag.ContinueOnError)
	flags.SetOutput(stderr)
	output := flags.String("output", "text", "text or json")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 || *output != "text" && *output != "json" {
		fmt.Fprintf(stderr, "nstance-agent status: invalid arguments --output %.80q %q: want --output text or json\n", *output, flags.Args())
		return 2
	}
	dir := agent.IdentityDir(os.Getenv)
	s, err := agent.ReadStatus(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(stderr, "nstance-agent status: no agent has run with identity directory %s (NSTANCE_IDENTITY_DIR)\n", dir)
		return 1
	}
	if err != nil {
		fmt.Fprintf(stderr, "nstance-agent status: %v\n", err)
		return 1
	}
	running := s.State != agent.StateStopped && alive(s.PID)
	if *output == "json" {
		err = json.NewEncoder(stdout).Encode(struct {
			agent.Status
			Running bool `json:"running"`
		}{s, running})
	} else {
		err = s.WriteText(stdout, time.Now(), running)
	}
	if err != nil {
		fmt.Fprintf(stderr, "nstance-agent status: %v\n", err)
		return 1
	}
	return 0
}

// alive reports whether a process exists, also as another user's.
func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
