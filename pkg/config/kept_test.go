package config_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

var jobs = fleet.GroupKey{Tenant: "blue", Name: "jobs"}

const (
	forBoth    = `"tenants": ["default", "blue"],`
	keptFiles  = `"a.conf": { "kind": "string", "content": "{{ .Vars.level }}" }, "b.conf": { "kind": "secret", "source": "db" }`
	otherFiles = `"c.conf": { "kind": "string", "content": "of default alone" }`
	dbForBoth  = `"db": { "tenants": ["default", "blue"] }`
)

// keptBy returns a group's record after next became the config, encoded and decoded: what is
// kept has to be readable.
func keptBy(t *testing.T, is config.GroupRecord, next *config.Shard, before ...*config.Shard) config.GroupRecord {
	t.Helper()
	input := encoded(t, is)
	after := succession(next, before...).KeepTemplate(jobs, is)
	if encoded(t, is) != input {
		t.Error("the input changed")
	}
	if again := succession(next, before...).KeepTemplate(jobs, after); !again.Same(after) {
		t.Errorf("kept twice: %s, once: %s", encoded(t, again), encoded(t, after))
	}
	if after.Revision != is.Revision {
		t.Errorf("revision %d became %d, and no change was asked for", is.Revision, after.Revision)
	}
	return stored(t, after)
}

// TestKeptDefinition: a group whose tenant may no longer use its template keeps the last
// version, and nothing later, until the tenant may use it again.
func TestKeptDefinition(t *testing.T) {
	with := func(pairs ...string) *config.Shard {
		return parse(t, sharedWith(append(pairs, "SECRETS", dbForBoth, "DEFAULTS", `"tenants": ["*"], "vars": { "level": "info" }`)...))
	}
	last := with("TEMPLATE", forBoth+`"require_files": false,`, "THEFILES", keptFiles)
	jobsIs := record(t, `{ "template": "theirs", "size": 3, "vars": { "own": 1 } }`)
	was, _, _ := last.ResolveGroup(jobs, jobsIs)
	if was.Disabled != "" {
		t.Fatal(was.Disabled)
	}
	for name, next := range map[string]*config.Shard{
		"taken away": with("THEFILES", otherFiles, "ARG", "other"),
		"gone":       parse(t, strings.Replace(sharedWith("SECRETS", dbForBoth), `"theirs"`, `"renamed"`, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			is := keptBy(t, jobsIs, next, last)
			g, _, problems := next.ResolveGroup(jobs, is)
			if g.FilesHeld || g.Hashes.Runtime != was.Hashes.Runtime || g.Kind != "knd" || len(g.Files) != 2 || !g.FilesOptional ||
				g.Vars["level"] != "info" {
				t.Errorf("jobs is %+v, want it with the files of %+v", g, was)
			}
			if len(problems) != 1 || !strings.Contains(g.Disabled, `template: no such template "theirs"`) || g.Size != 3 ||
				!strings.Contains(g.Disabled, "no machine of this group is created, replaced or removed") ||
				!strings.Contains(g.Disabled, "from the last template version that this tenant could use") {
				t.Errorf("jobs is held, because %s", g.Disabled)
			}
			if fine := record(t, `{ "template": "open" }`); !succession(next, last).KeepTemplate(jobs, fine).Same(fine) {
				t.Error("something is kept of a template that is still the tenant's")
			}
			// Another change does not drop it, whatever the previous config was.
			is = keptBy(t, is, next, next)
			if again, _, _ := next.ResolveGroup(jobs, is); again.Hashes != g.Hashes {
				t.Errorf("after the next change jobs is %+v", again)
			}
			is = keptBy(t, is, last, next)
			if is.Kept != nil {
				t.Errorf("kept although the template is the tenant's again: %+v", is.Kept)
			}
			if again, _, _ := last.ResolveGroup(jobs, is); again.Hashes != was.Hashes || again.Disabled != "" {
				t.Errorf("where it may have its template again jobs is %+v", again)
			}
		})
	}
}

// TestKeptIsOfTheLastText: the leftover of a failed acceptance does not count.
func TestKeptIsOfTheLastText(t *testing.T) {
	of := func(content string) *config.Shard {
		return parse(t, sharedWith("TEMPLATE", forBoth, "THEFILES", `"a.conf": { "kind": "string", "content": "`+content+`" }`))
	}
	next := parse(t, sharedWith())
	is := keptBy(t, record(t, `{ "template": "theirs", "size": 3 }`), next, of("old"))
	is = keptBy(t, is, next, of("new"), of("old"))
	if g, _, _ := next.ResolveGroup(jobs, is); g.Files["a.conf"].Content != "new" {
		t.Errorf("jobs has %+v", g.Files)
	}
}

// TestNothingKept: without a kept version, nothing of the template is delivered, since it is
// another tenant's now, nor to a removed group. With another template nothing is kept.
func TestNothingKept(t *testing.T) {
	next := parse(t, sharedWith("THEFILES", otherFiles, "ARG", "secret", "DEFAULTS", `"tenants": ["*"], "vars": { "all": 1 }`))
	for entry, disabled := range map[string]bool{
		`{ "template": "theirs", "size": 3 }`:                  true,
		`{ "template": "theirs", "size": 3, "removed": true }`: false,
	} {
		g, _, _ := next.ResolveGroup(jobs, record(t, entry))
		if !g.FilesHeld || (g.Disabled != "") != disabled || disabled && !strings.Contains(g.Disabled, "keep the files they have") {
			t.Errorf("of %s the group is %+v, want its files held", entry, g)
		}
		if len(g.Files)+len(g.Args) > 0 {
			t.Errorf("of %s the group has what is another's: %+v", entry, g)
		}
	}
	is := keptBy(t, record(t, `{ "template": "theirs", "size": 3 }`), next, parse(t, sharedWith("TEMPLATE", forBoth)))
	moved, err := next.ChangeGroup(jobs, is, config.Change{Template: ptr("open")}, config.Checks{})
	if err != nil {
		t.Fatal(err)
	}
	if moved.Kept != nil {
		t.Errorf("with another template there is kept %+v", moved.Kept)
	}
	gone, err := next.RemoveGroup(jobs, is, config.By{})
	if err != nil {
		t.Fatal(err)
	}
	if g, _, _ := next.ResolveGroup(jobs, gone); g.FilesHeld || len(g.Files) != 0 || !g.Removed {
		t.Errorf("while it goes the group is %+v, want what is kept of it", g)
	}
}

// TestKeptAndTakenAway: the source of a kept file may be withdrawn, too. Only that file stays
// unchanged, and the group reports it.
func TestKeptAndTakenAway(t *testing.T) {
	last := parse(t, sharedWith("TEMPLATE", forBoth, "THEFILES", keptFiles, "SECRETS", dbForBoth))
	next := parse(t, sharedWith())
	is := keptBy(t, record(t, `{ "template": "theirs", "size": 3 }`), next, last)
	g, _, _ := next.ResolveGroup(jobs, is)
	want := `file b.conf stays unchanged on the machines: source: the secret "db" is not for tenant "blue"`
	if g.FilesHeld || !strings.Contains(g.Disabled, want) || strings.Contains(g.Disabled, "a.conf") {
		t.Errorf("jobs is held, because %s; want %s", g.Disabled, want)
	}
}

// TestKeptByHand: an external edit can't keep what no config can define.
func TestKeptByHand(t *testing.T) {
	next := parse(t, sharedWith())
	for _, file := range []string{
		`"ca.key": { "kind": "secret", "source": "ca.key" }`,
		`"a.conf": { "kind": "storage", "source": "files/../config/x" }`,
		`"../a": { "kind": "string", "content": "x" }`,
		`"a.conf": { "kind": "socket" }`,
		`"a.crt": { "kind": "certificate", "template": "node", "key": { "source": "agent", "name": "../x" } }`,
	} {
		all := records(t, `{ "blue": { "jobs": { "template": "theirs", "size": 3,
			"kept": { "kind": "knd", "arch": "amd64", "files": { `+file+` } } } } }`)
		if g, _, _ := next.ResolveGroup(jobs, all[jobs]); !g.FilesHeld || !strings.Contains(g.Disabled, "kept.files") {
			t.Errorf("with %s the group is %+v", file, g)
		}
	}
}
