package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// printCosts prints a table of the steps' costs and their total. Wall time is less than the sum if
// some ran concurrently.
func printCosts(out io.Writer, costs []cost, wall time.Duration) {
	fmt.Fprintf(out, "\n%-17s %8s %8s %6s\n", "step", "wall", "cpu", "idle")
	total := cost{name: "total", wall: wall, idle: -1}
	for _, c := range costs {
		printCost(out, c)
		total.cpu += c.cpu
	}
	printCost(out, total)
}

func printCost(out io.Writer, c cost) {
	if c.before != "" {
		fmt.Fprintf(out, "%-17s %s\n", c.name, c.before)
		return
	}
	idle := "-"
	if c.idle >= 0 {
		idle = fmt.Sprintf("%.0f%%", 100*c.idle)
	}
	fmt.Fprintf(out, "%-17s %7.0fs %7.0fs %6s\n", c.name, c.wall.Seconds(), c.cpu.Round(time.Second).Seconds(), idle)
}

var (
	// What gotestsum prints at the end of all runs of a test; empty: the package failed without one.
	summarised    = regexp.MustCompile(`^=== FAIL: (\S+) (\S*)(?: \(re-run \d+\))? \(`)
	failedTest    = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	failedPackage = regexp.MustCompile(`^(?:\[\s*\d+/\d+\] )?FAIL\s+([^\s\[]+)(.*)$`)
)

// failures returns the failed tests in the output of go test and gotestsum, in its order: each with
// its package if that is known, and subtests without their parents. Those that depended on chance
// are left out.
func failures(log string) (all []string) {
	byChance := chances(log)
	summary := map[string][]string{} // tests by package, whose beginning gotestsum leaves out
	for line := range strings.SplitSeq(log, "\n") {
		if m := summarised.FindStringSubmatch(line); m != nil && !slices.Contains(summary[m[1]], m[2]) {
			summary[m[1]] = append(summary[m[1]], m[2])
		}
	}
	for _, failed := range plainFailures(log) {
		pkg, _, _ := strings.Cut(failed, " ")
		tests := summaryOf(summary, pkg)
		if len(tests) == 0 {
			all = append(all, failed)
			continue
		}
		for _, test := range deepest(tests) {
			root, _, _ := strings.Cut(test, "/")
			name := strings.TrimSpace(pkg + " " + test)
			isChance := slices.ContainsFunc(byChance, func(c string) bool { return strings.HasSuffix(c, pkg+"."+root) })
			if !isChance && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// summaryOf returns the tests of a package in gotestsum's summary.
func summaryOf(summary map[string][]string, pkg string) []string {
	for short, tests := range summary {
		if pkg == short || strings.HasSuffix(pkg, "/"+short) {
			return tests
		}
	}
	return nil
}

// chances returns the tests that a step named because they failed and passed then.
func chances(log string) (all []string) {
	for line := range strings.SplitSeq(log, "\n") {
		if test, found := strings.CutPrefix(line, "CHANCE: "); found {
			all = append(all, test)
		}
	}
	return all
}

// plainFailures returns the failed tests in go test's output.
func plainFailures(log string) (all []string) {
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

// The limits of what is printed for a failed test: the log has all of it.
const (
	shownMessages = 6
	shownLines    = 4
	shownLength   = 300
)

var (
	currentTest  = regexp.MustCompile(`^\s*(?:=== (?:RUN|CONT|NAME)|--- FAIL:|=== FAIL: \S+)\s+(\S+)`)
	endOfMessage = regexp.MustCompile(`^(?:\s*(?:===|---) |FAIL|PASS|ok  )`)
	message      = regexp.MustCompile(`^\s+\S+\.go:\d+: `)
)

// messages returns the first messages of a test, each with a few lines, by its name in failures:
// the cause is among them, since messages of cleanups come later.
func messages(log, failed string) (all []string) {
	_, name, hasPackage := strings.Cut(failed, " ")
	if !hasPackage {
		name = failed
	}
	test, shown, lines := "", 0, 0
	for line := range strings.SplitSeq(log, "\n") {
		switch m := currentTest.FindStringSubmatch(line); {
		case m != nil:
			test, lines = m[1], 0
			continue
		case endOfMessage.MatchString(line):
			lines = 0
		case message.MatchString(line):
			lines = 0
			if test == name && shown < shownMessages {
				shown++
				lines = shownLines
			}
		}
		if lines > 0 && line != "" {
			lines--
			all = append(all, fmt.Sprintf("%.*s", shownLength, line))
		}
	}
	return all
}

// deepest drops each test of which a subtest is listed too.
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
