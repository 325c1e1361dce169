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
}

// steps are all steps in their order.
func steps() []step {
	target := func(name string) step { return step{name, []string{"make", "--no-print-directory", name}} }
	return []step{
		{"check", []string{".ci/check"}},
		target("verify"),
		target("build"),
		target("lint"),
		target("test"),
		target("vulncheck"),
		target("e2e"),
		target("e2e-aws"),
		target("e2e-operator"),
		target("chart-check"),
		target("e2e-images"),
		target("nix-check"),
		target("terraform-check"),
		target("integration"),
	}
}

// choose returns the steps from the named one on, or only the named ones, in their order.
// An empty name excludes nothing.
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
		return all[n:], nil
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
	return slices.DeleteFunc(slices.Clone(all), func(s step) bool { return !slices.Contains(wanted, s.name) }), nil
}

func noStep(flag, name string, names []string) error {
	return fmt.Errorf("%s %q: no such step, valid are %s", flag, name, strings.Join(names, ", "))
}
