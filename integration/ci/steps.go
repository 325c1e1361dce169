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
	// What its result depends on, besides the command itself. Without inputs it runs each time.
	inputs   []string   // git pathspecs
	packages []packages // with all that they import
	tools    [][]string // commands that print a version
}

// packages are the packages of a pattern, in the module of a folder.
type packages struct{ folder, pattern string }

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
