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
	// lane names the steps that run in this order; those of other lanes that come directly
	// before and after run at the same time. Empty: nothing else runs meanwhile.
	lane string
	// secluded: it has a network of its own beside other lanes, where it takes ports of theirs,
	// or where it has to pass without any other network.
	secluded bool
	// beside: other lanes run meanwhile. Lanes set it.
	beside bool
	needs  string // a step before it without which it means nothing; empty: none
}

// steps are all steps in their order.
func steps() []step {
	target := func(name string) step {
		return step{name: name, command: []string{"make", "--no-print-directory", name}}
	}
	// Stories mostly wait, while the tests compute. What stories run is built before, so that
	// none of it changes under another.
	story := func(name, lane string, secluded bool) step {
		s := target(name)
		s.command = append(s.command, "BUILT=1")
		s.lane, s.secluded, s.needs = lane, secluded, "e2e-built"
		return s
	}
	tests := target("test")
	tests.lane, tests.secluded = "tests", true
	return []step{
		{name: "check", command: []string{".ci/check"}},
		target("verify"),
		target("build"),
		target("lint"),
		target("vulncheck"),
		target("e2e-built"),
		tests,
		story("e2e", "shard", false),
		story("e2e-aws", "shard", false),
		story("e2e-operator", "operator", true),
		target("chart-check"),
		target("e2e-images"),
		target("nix-check"),
		target("terraform-check"),
		target("integration"),
	}
}

// choose returns the steps from the named one on, or only the named ones, in their order,
// and what these need. An empty name excludes nothing.
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

// withNeeded returns the chosen steps of all, each after the one that it needs.
func withNeeded(all, chosen []step) (ordered []step) {
	has := func(steps []step, name string) bool {
		return slices.ContainsFunc(steps, func(s step) bool { return s.name == name })
	}
	for _, s := range chosen {
		if s.needs != "" && !has(chosen, s.needs) && !has(ordered, s.needs) {
			ordered = append(ordered, all[slices.IndexFunc(all, func(other step) bool { return other.name == s.needs })])
		}
		ordered = append(ordered, s)
	}
	return ordered
}

func noStep(flag, name string, names []string) error {
	return fmt.Errorf("%s %q: no such step, valid are %s", flag, name, strings.Join(names, ", "))
}
