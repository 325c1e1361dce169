package main

import (
	"fmt"
	"slices"
	"strings"
)

// step is one command of continuous integration.
type step struct {
	name    string
	command []string
	// lane names a lane, whose steps run in this order; adjacent steps of other lanes run at the
	// same time. Empty: the step runs alone.
	lane string
	// secluded: beside other lanes, the step has a network of its own, because it uses the same
	// ports, or has to pass without any other network.
	secluded bool
	// beside: other lanes run meanwhile. Set by lanes.
	beside bool
	needs  string // the earlier step without which it is meaningless; empty: none
}

// gate returns the steps that every change has to pass: short ones, and with the same result each
// time that they run on the same tree.
func gate() []step {
	return []step{
		{name: "check", command: []string{".ci/check"}},
		target("verify"),
		target("build"),
		target("lint"),
		target("vulncheck"),
		target("gate-built"),
		isolated(in(after("gate-built", target("test")), "tests")),
		in(after("gate-built", story("e2e-gate")), "shard"),
		in(after("gate-built", target("chart-check")), "shard"),
		isolated(in(after("gate-built", story("e2e-operator-gate")), "operator")),
	}
}

// everything returns the steps of the gate that are not repeated more thoroughly, and all others:
// those that take long, draw random numbers, measure, or need a container engine or other tools.
func everything() []step {
	return []step{
		{name: "check", command: []string{".ci/check"}},
		target("verify"),
		target("build"),
		target("lint"),
		target("vulncheck"),
		target("e2e-built"),
		isolated(in(after("e2e-built", target("test-race")), "tests")),
		in(after("e2e-built", story("e2e")), "shard"),
		in(after("e2e-built", story("e2e-aws")), "shard"),
		isolated(in(after("e2e-built", story("e2e-operator")), "operator")),
		in(target("nix-check"), "shard"), // its development stacks take the ports of e2e's
		in(target("chart-check"), "tools"),
		in(target("dashboard-check"), "tools"),
		in(target("e2e-images"), "images"),
		in(target("terraform-check"), "tools"),
		in(target("integration"), "containers"),
	}
}

func target(name string) step {
	return step{name: name, command: []string{"make", "--no-print-directory", name}}
}

// story returns the step of a target whose programs are built before, so that none changes while
// it is used. Stories mostly wait, while the tests compute.
func story(name string) step {
	s := target(name)
	s.command = append(s.command, "BUILT=1")
	return s
}

func after(name string, s step) step {
	s.needs = name
	return s
}

func in(s step, lane string) step {
	s.lane = lane
	return s
}

func isolated(s step) step {
	s.secluded = true
	return s
}

// choose returns the steps from the named one on, or only the named ones, in their order, with the
// steps that these need. An empty name excludes nothing.
func choose(all []step, from, only string) ([]step, error) {
	if from != "" && only != "" {
		return nil, fmt.Errorf("-from %s and -only %s exclude each other", from, only)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	if from != "" {
		n := slices.Index(names, from)
		if n < 0 {
			return nil, noStep("-from", from, names)
		}
		return withNeeded(all, all[n:]), nil
	}
	if only == "" {
		return all, nil
	}
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, noStep("-only", name, names)
		}
	}
	return withNeeded(all, slices.DeleteFunc(slices.Clone(all), func(s step) bool { return !slices.Contains(wanted, s.name) })), nil
}

// withNeeded returns the chosen steps of all and those that they need, in the order of all: a step
// that runs alone must not come between lanes.
func withNeeded(all, chosen []step) []step {
	wanted := map[string]bool{}
	for _, s := range chosen {
		wanted[s.name] = true
		wanted[s.needs] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(s step) bool { return !wanted[s.name] })
}

func noStep(flag, name string, names []string) error {
	return fmt.Errorf("%s %q: no such step, valid are %s", flag, name, strings.Join(names, ", "))
}
