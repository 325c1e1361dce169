package plan_test

import "testing"

// TestHeld: a group whose record is missing loses no working instance, by its size, its age, its
// definition or its list of those that leave. What is dead, silent or asked for goes as ever.
func TestHeld(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"more than its size":           {"held size=1 | a running | b running | c pending", ""},
		"size 0":                       {"held size=0 | a running", ""},
		"listed as leaving":            {"held size=2 leaving=a | a running | b running", ""},
		"past the forced age":          {"held size=1 forced=24h | a running", ""},
		"past it, and one to spare":    {"held size=1 forced=24h | a running | b running", ""},
		"past the eligible age":        {"held size=1 eligible=24h | a running", ""},
		"past it, with one to spare":   {"held size=1 eligible=24h | a running | b running", ""},
		"of another definition":        {"held size=1 infra=new | a running infra=old", ""},
		"of another, and one to spare": {"held size=1 infra=new | a running infra=old | b running infra=new", ""},
		"dead":                         {"held size=2 | a running down | b running", "create scale-up | delete a vm-down"},
		"silent":                       {"held size=1 | a running silent=3m | b running", "drain a unhealthy +5m0s"},
		"asked to be replaced":         {"held size=1 | a running asked | b running", "drain a asked-to-be-replaced +5m0s"},
		"without a machine":            {"held size=1 | a pending unmade", "resume a not-created"},

		"disabled":                        {"held disabled size=1 | a running | b running silent=3m", ""},
		"disabled, without a machine":     {"held disabled size=1 | a running | b pending unmade", "tombstone b never-acted-on"},
		"disabled, and being made":        {"held disabled size=1 | a pending | b pending unmade busy", ""},
		"not held, and without a machine": {"disabled size=1 | b pending unmade", ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.state, c.want) })
	}
}

// TestAbortIsForgotten: an abort ends once all instances have another definition than the refused one, and not
// while that is asked for.
func TestAbortIsForgotten(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"none was aborted":             {"size=1 infra=new | a running infra=new", ""},
		"in effect":                    {"size=1 infra=old refuses=new aborted | a running infra=old", ""},
		"another one is rolled out":    {"size=1 infra=next refuses=new | a running infra=next", "forget-abort"},
		"another one is being made":    {"size=2 infra=next refuses=new | a running infra=next | b pending infra=next", ""},
		"one drains":                   {"size=1 infra=next refuses=new | a running infra=next | b draining infra=old", ""},
		"one is outdated, and paused":  {"size=1 infra=next refuses=new paused | a running infra=old", ""},
		"without instances":            {"size=0 infra=next refuses=new", ""},
		"fewer than its size, refused": {"size=2 infra=next refuses=new holdoff=1m | a running infra=next", "wake +1m0s"},
		"a place is taken, none known": {"size=1 filled=1 infra=next refuses=new | a running infra=next", ""},
		"retried, and rolled out":      {"size=1 infra=next refuses= | a running infra=next", "forget-abort"},
		"disabled":                     {"disabled size=1 infra=next refuses=new | a running infra=next", ""},
		"held":                         {"held size=1 infra=next refuses=new | a running infra=next", ""},
		"an on-demand one is outdated": {"size=1 infra=next refuses=new | a running infra=next | b running ondemand infra=old", "forget-abort"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.state, c.want) })
	}
}

// TestHeldIsForgotten: a group that is known only by its instances ends with the last of them; one
// whose definition is known does not.
func TestHeldIsForgotten(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"only tombstones are left":     {"held disabled size=1 | a deleted", "forget group-removed"},
		"one is draining":              {"held disabled size=1 | a draining", ""},
		"the definition is known":      {"held disabled template=knd size=1 | a deleted", ""},
		"it only has no template here": {"disabled size=1 | a deleted", ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, c.state, c.want) })
	}
}
