package plan_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// now is the time of every state written as text.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// id returns the id of the instance with the given one-letter name: the first
// letters of the alphabet are the oldest, a minute apart, all over a day old.
func id(name string) fleet.InstanceID {
	n := int(name[0] - 'a')
	return newID(now.Add(-25*time.Hour+time.Duration(n)*time.Minute), uint64(n))
}

func newID(at time.Time, random uint64) fleet.InstanceID {
	var b [10]byte
	binary.BigEndian.PutUint64(b[2:], random)
	id, err := fleet.NewID("knd", at, bytes.NewReader(b[:]))
	if err != nil {
		panic(err)
	}
	return id
}

// settings are the defaults of a shard, without expiry.
func settings() plan.Settings {
	return plan.Settings{
		ReportInterval: time.Minute, MissedReports: 3, ShutdownGrace: 30 * time.Second,
		RegistrationTimeout: 5 * time.Minute, DeletedRetention: 30 * time.Minute, CreateTimeout: 10 * time.Minute,
	}
}

// parse reads a state: the group first, then one instance per part, as in
//
//	size=2 leaving=a | a running | b pending created=6m | c draining acked
//
// Times are durations from now, in the past or the future as the word implies.
func parse(t *testing.T, state string) plan.View {
	t.Helper()
	parts := strings.Split(state, "|")
	v := plan.View{Now: now, Settings: settings(), Takeover: now.Add(-24 * time.Hour), Surge: 1}
	v.Group = fleet.Group{Key: fleet.GroupKey{Tenant: "default", Name: "web"}, DrainTimeout: 5 * time.Minute}
	for _, word := range strings.Fields(parts[0]) {
		parseGroup(t, &v, word)
	}
	for _, part := range parts[1:] {
		v.Instances = append(v.Instances, parseInstance(t, strings.Fields(part)))
	}
	return v
}

func parseGroup(t *testing.T, v *plan.View, word string) {
	t.Helper()
	key, value, _ := strings.Cut(word, "=")
	g, s := &v.Group, &v.Settings
	switch key {
	case "size":
		number(t, value, &g.Size)
	case "removed":
		g.Removed = true
	case "disabled":
		g.Disabled = "no such template"
	case "held":
		g.RecordMissing = "its record is missing"
	case "template":
		g.Template = value
	case "leaving":
		for name := range strings.SplitSeq(value, ",") {
			g.Leaving = append(g.Leaving, id(name))
		}
	case "drain":
		g.DrainTimeout = span(t, value)
	case "infra":
		g.Hashes.Infra = value
	case "refuses":
		g.Aborted, g.Refuses = true, value
	case "aborted":
		g.Asked = &fleet.Asked{Infra: g.Refuses}
	case "files":
		g.Files, g.FilesOptional = map[string]fleet.File{"app.conf": {Kind: "string"}}, value == "optional"
	case "holdoff":
		v.Pace.NotBefore = now.Add(span(t, value))
	case "probation":
		number(t, value, &v.Pace.Probation)
	case "settling":
		v.Pace.Settling = true
	case "proof":
		v.Pace.Proof = span(t, value)
	case "settle":
		s.Settle = span(t, value)
	case "max-surge":
		if err := g.MaxSurge.UnmarshalText([]byte(value)); err != nil {
			t.Fatal(err)
		}
	case "filled":
		number(t, value, &v.Filled)
	case "paused":
		g.RolloutPaused = true
	case "surge":
		number(t, value, &v.Surge)
	case "takeover":
		v.Takeover = now.Add(-span(t, value))
	case "eligible":
		s.EligibleAge = span(t, value)
	case "forced":
		s.ForcedAge = span(t, value)
	case "ondemand":
		s.OnDemandAge = span(t, value)
	default:
		t.Fatalf("group word %q is not known", word)
	}
}

func parseInstance(t *testing.T, words []string) plan.Instance {
	t.Helper()
	i := instance(id(words[0]), fleet.Phase(words[1]))
	for _, word := range words[2:] {
		parseInstanceWord(t, &i, word)
	}
	return i
}

// instance returns a healthy instance in a phase.
func instance(id fleet.InstanceID, phase fleet.Phase) plan.Instance {
	i := plan.Instance{Instance: &fleet.Instance{
		ID: id, Tenant: "default", Group: "web", Phase: phase,
		CreatedAt: id.Time(), Provider: fleet.ProviderRef{ID: "vm-" + string(id)},
	}, VM: plan.VMAlive}
	switch phase {
	case fleet.Pending:
		i.CreatedAt = now.Add(-time.Minute)
	case fleet.Running:
		i.RegisteredAt = new(i.CreatedAt.Add(time.Minute))
		i.Health = plan.Health{Connected: true, LastReportAt: now.Add(-10 * time.Second)}
	case fleet.Draining:
		i.Drain = &fleet.Drain{Reason: plan.ReasonScaleDown, DeleteAt: now.Add(time.Minute)}
		i.Reason = plan.ReasonScaleDown
	case fleet.Deleted:
		i.VM, i.DeletedAt = plan.VMGone, new(now.Add(-time.Minute))
	case fleet.Deleting:
	}
	return i
}

func parseInstanceWord(t *testing.T, i *plan.Instance, word string) {
	t.Helper()
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "unmade":
		i.Provider.ID, i.VM = "", plan.VMUnknown
	case "tried":
		i.Provider.CreateAttemptedAt = new(now.Add(-span(t, value)))
	case "again":
		i.AskedAt = now.Add(-span(t, value))
	case "created":
		i.CreatedAt = now.Add(-span(t, value))
	case "registered":
		i.RegisteredAt = new(now.Add(-span(t, value)))
	case "silent":
		i.Health.LastReportAt = now.Add(-span(t, value))
	case "unreported":
		i.Health = plan.Health{}
	case "interval":
		i.Health.ReportInterval = span(t, value)
	case "disconnected":
		i.Health.Connected = false
	case "without-files":
		i.Health.WithoutFiles = true
	case "down":
		i.VM = plan.VMDown
	case "gone":
		i.VM = plan.VMGone
	case "alive":
		i.VM = plan.VMAlive
	case "unknown":
		i.VM = plan.VMUnknown
	case "notice":
		i.Health.Notice = &fleet.Notice{}
		if value != "" {
			i.Health.Notice.At = now.Add(span(t, value))
		}
	case "shutting":
		i.Health.Connected, i.Health.ShuttingDownAt = false, now.Add(-span(t, value))
	case "busy":
		i.Busy = true
	case "stray":
		i.Stray = true
	case "retry":
		i.RetryAt = now.Add(span(t, value))
	case "immediate":
		i.Immediate = true
	case "ondemand":
		i.OnDemand = true
	case "asked":
		i.RemovalAskedAt = new(now.Add(-time.Second))
	case "acked":
		i.Drain.AckedAt = new(now)
	case "until":
		if i.Drain == nil { // a tombstone
			i.Drain = &fleet.Drain{Reason: i.Reason}
		}
		i.Drain.DeleteAt = now.Add(span(t, value))
	case "reason":
		i.Reason = value
		if i.Drain != nil {
			i.Drain.Reason = value
		}
	case "deleted":
		i.DeletedAt = new(now.Add(-span(t, value)))
	case "infra":
		i.Hashes.Infra = value
	default:
		t.Fatalf("instance word %q is not known", word)
	}
}

func number(t *testing.T, s string, into *int) {
	t.Helper()
	if _, err := fmt.Sscan(s, into); err != nil {
		t.Fatal(err)
	}
}

func span(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// format returns actions as text, with the instances' one-letter names.
func format(v plan.View, actions []plan.Action) string {
	names := map[fleet.InstanceID]string{}
	for c := 'a'; c <= 'z'; c++ {
		names[id(string(c))] = string(c)
	}
	var out []string
	for _, a := range actions {
		words := []string{string(a.Kind)}
		for _, id := range append([]fleet.InstanceID{a.ID}, a.IDs...) {
			if id != "" {
				words = append(words, names[id])
			}
		}
		if a.Reason != "" {
			words = append(words, a.Reason)
		}
		if a.Immediate {
			words = append(words, "immediate")
		}
		if !a.At.IsZero() {
			words = append(words, "+"+a.At.Sub(v.Now).String())
		}
		out = append(out, strings.Join(words, " "))
	}
	return strings.Join(out, " | ")
}
