package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// printCosts prints a table of what the steps took, and all of them together: less wall
// time than their sum where some ran side by side.
func printCosts(out io.Writer, costs []cost, wall time.Duration) {
	fmt.Fprintf(out, "\n%-16s %8s %8s %6s\n", "step", "wall", "cpu", "idle")
	total := cost{name: "total", wall: wall, idle: -1}
	for _, c := range costs {
		printCost(out, c)
		total.cpu += c.cpu
	}
	printCost(out, total)
}

func printCost(out io.Writer, c cost) {
	idle := "-"
	if c.idle >= 0 {
		idle = fmt.Sprintf("%.0f%%", 100*c.idle)
	}
	fmt.Fprintf(out, "%-16s %7.0fs %7.0fs %6s\n", c.name, c.wall.Seconds(), c.cpu.Round(time.Second).Seconds(), idle)
}

var (
	failedTest    = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	failedPackage = regexp.MustCompile(`^(?:\[\s*\d+/\d+\] )?FAIL\s+([^\s\[]+)(.*)$`)
)

// failures returns what go test says has failed, in the order in which it says so: each
// test with its package where that is known, without those above a failed subtest.
func failures(log string) (all []string) {
	var tests []string
	for line := range strings.SplitSeq(log, "\n") {
		if m := failedTest.FindStringSubmatch(line); m != nil {
			tests = append(tests, m[1])
			continue
		}
		m := failedPackage.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if len(tests) == 0 {
			all = append(all, strings.TrimSpace(m[1]+" "+strings.TrimSpace(m[2])))
		}
		for _, test := range deepest(tests) {
			all = append(all, m[1]+" "+test)
		}
		tests = nil
	}
	return append(all, deepest(tests)...)
}

// deepest leaves out each test of which a subtest is named too.
func deepest(tests []string) (leaves []string) {
	for _, test := range tests {
		isParent := false
		for _, other := range tests {
			isParent = isParent || strings.HasPrefix(other, test+"/")
		}
		if !isParent {
			leaves = append(leaves, test)
		}
	}
	return leaves
}
