package fleet_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// everywhere is an instance with all of its times at a moment.
func everywhere(at time.Time) fleet.Instance {
	return fleet.Instance{
		CreatedAt: at, RegisteredAt: &at, RemovalAskedAt: &at, DeletedAt: &at,
		Provider: fleet.ProviderRef{CreateAttemptedAt: &at}, Drain: &fleet.Drain{DeleteAt: at, AckedAt: &at},
	}.Clone()
}

// timeFields counts the fields of a type, and of the structs in it, that are times.
func timeFields(in reflect.Type) (n int) {
	if in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	if in == reflect.TypeFor[time.Time]() {
		return 1
	}
	if in.Kind() != reflect.Struct {
		return 0
	}
	for f := range in.NumField() {
		n += timeFields(in.Field(f).Type)
	}
	return n
}

func TestMomentsAreAllTimes(t *testing.T) {
	want := timeFields(reflect.TypeFor[fleet.Instance]())
	for name, i := range map[string]fleet.Instance{"none": {}, "all": everywhere(time.Now())} {
		if got := len(i.Moments()); got != want {
			t.Errorf("%s: %d moments, want %d", name, got, want)
		}
	}
}

// isMeasured reports whether a time has a reading of the monotonic clock.
func isMeasured(at time.Time) bool { return at != at.Round(0) }

// TestMeasure: all times get a reading of the monotonic clock, and keep what they say.
func TestMeasure(t *testing.T) {
	now := time.Now()
	for _, at := range []time.Time{now, now.Add(-24 * time.Hour), now.Add(time.Hour)} {
		i := everywhere(at.UTC())
		i.Measure(fleet.Instance{}, now)
		for n, m := range i.Moments() {
			if !isMeasured(*m.At) || !m.At.Round(0).Equal(at.Round(0)) {
				t.Errorf("moment %d of %s is %s", n, at, m.At)
			}
		}
	}
	i := everywhere(time.Time{})
	i.Measure(fleet.Instance{}, now)
	if !i.CreatedAt.IsZero() {
		t.Errorf("no time became %s", i.CreatedAt)
	}
	empty := fleet.Instance{}
	empty.Measure(everywhere(now), now)
	if empty.RegisteredAt != nil || empty.Drain != nil {
		t.Errorf("got times: %+v", empty)
	}
}

// TestMeasureKeepsReadings: a record that is read again keeps the readings of what it said before,
// and only those: now has none here.
func TestMeasureKeepsReadings(t *testing.T) {
	at := time.Now()
	known, read := everywhere(at), everywhere(at.UTC())
	read.Measure(known, at.UTC().Add(time.Minute))
	for n, m := range read.Moments() {
		if !isMeasured(*m.At) {
			t.Errorf("moment %d lost its reading", n)
		}
	}
	*read.RegisteredAt = at.UTC().Add(time.Second)
	read.Measure(known, at.UTC().Add(time.Minute))
	if isMeasured(*read.RegisteredAt) {
		t.Error("a changed time has the reading of the earlier one")
	}
	if !isMeasured(*read.DeletedAt) {
		t.Error("a time lost its own reading")
	}
}

// TestInUTC: what is stored does not depend on the time zone of a server, nor on readings.
func TestInUTC(t *testing.T) {
	at := time.Now()
	i := everywhere(at.In(time.FixedZone("east", 3600)))
	got, err := json.Marshal(i.InUTC())
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(everywhere(at.UTC()))
	if err != nil || string(got) != string(want) {
		t.Errorf("got %s, want %s: %v", got, want, err)
	}
	if _, offset := i.CreatedAt.Zone(); offset != 3600 {
		t.Error("the instance itself was changed")
	}
}
