package stack

import (
	"slices"
	"testing"
)

// TestShortGroups: only a group that is as the static config has it keeps the stack from being up.
func TestShortGroups(t *testing.T) {
	group := func(key string, size, actual, staticSize int, static bool) groupLine {
		return groupLine{Shard: "dev-1", Key: key, Size: size, ActualSize: actual, IsStatic: static, StaticSize: staticSize}
	}
	static, changed := shortGroups([]groupLine{
		group("whole", 2, 2, 2, true), group("short", 2, 1, 2, true), group("scaled", 5, 2, 2, true), group("made", 3, 0, 0, false),
		group("shrunk", 1, 2, 2, true), group("none", 0, 0, 0, false),
	})
	if want := []string{"short of dev-1 has 1 of 2"}; !slices.Equal(static, want) {
		t.Errorf("of the static config: %q, want %q", static, want)
	}
	if want := []string{"scaled of dev-1 has 2 of 5", "made of dev-1 has 0 of 3", "shrunk of dev-1 has 2 of 1"}; !slices.Equal(changed, want) {
		t.Errorf("changed since: %q, want %q", changed, want)
	}
}
