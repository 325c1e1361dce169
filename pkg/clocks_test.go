package pkg_test

import (
	"slices"
	"strings"
	"testing"
)

// TestClocks: no test asserts a real time, which would fail on a machine under load: a time is
// measured in a benchmark, passes in simulated time (testing/synctest), or is a bound of a minute
// or more, which only a hang exceeds. Reported are comparisons of a measured time, deadlines, and
// bounds of contexts, timers and functions that wait. Waiting in order to check that nothing
// happens, and pauses between polls, are no assertions of a time.
//
// Exceptions are in realTimes, with their reasons.
func TestClocks(t *testing.T) {
	unused := map[string]bool{}
	for key := range realTimes() {
		unused[key] = true
	}
	for _, f := range repository(t, "..").find() {
		if strings.HasPrefix(f.key, "integration/bench/") {
			continue // it measures
		}
		if realTimes()[f.key] == "" {
			t.Errorf("%s: %s: simulate the time, measure it in a benchmark, or let it be a minute or more", f.at, f.what)
		}
		delete(unused, f.key)
	}
	for key := range unused {
		t.Errorf("%s asserts no real time, and needs no exception", key)
	}
}

// TestClocksFindsNewOnes: each kind of assertion is found where real time passes, and nowhere else.
func TestClocksFindsNewOnes(t *testing.T) {
	for name, c := range snippets() {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range snippet(t, c.code).find() {
				_, function, _ := strings.Cut(f.key, " ")
				got = append(got, function+": "+f.what)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
