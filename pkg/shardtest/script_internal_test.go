package shardtest

import (
	"strings"
	"testing"
)

// TestCommandsAreReachable: no command hides one below it.
func TestCommandsAreReachable(t *testing.T) {
	examples := map[string]string{
		"SPAN": "3s", "COUNT": "3", "SERVER": "a", "HOST": "b", "INSTANCE": "i1", "GROUP": "web", "KEY": "k1", "TYPE": "small",
		"CALL": "list", "KIND": "groups",
	}
	all := commands()
	for n, c := range all {
		words := strings.Fields(c.pattern)
		for at, word := range words {
			if value, is := examples[word]; is {
				words[at] = value
			}
		}
		if _, ok := match(strings.Fields(c.pattern), words); !ok {
			t.Errorf("%q does not match %q", words, c.pattern)
		}
		for _, before := range all[:n] {
			if _, hidden := match(strings.Fields(before.pattern), words); hidden {
				t.Errorf("%q is hidden by %q", c.pattern, before.pattern)
			}
		}
	}
}
