package record_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/record"
)

// machine is a record with all features of records.
type machine struct {
	Name  string     `json:"name"`
	Rev   uint64     `json:"rev"`
	Since *time.Time `json:"since,omitempty"`
	Place place      `json:"place"`
	Plan  *plan      `json:"plan,omitempty"`
	Tags  []string   `json:"tags,omitempty"`
	Free  map[string]any
	note  string
}

type place struct {
	Zone string `json:"zone,omitempty"`
	Rack *rack  `json:"rack,omitempty"`
}

type rack struct {
	Unit int `json:"unit"`
}

type plan struct {
	Reason string `json:"reason"`
}

func decode(t *testing.T, body string) (machine, record.Unknown) {
	t.Helper()
	m, unknown, err := record.Decode[machine]([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return m, unknown
}

func encode(t *testing.T, m machine, unknown record.Unknown) string {
	t.Helper()
	body, err := record.Encode(m, unknown)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestUnknownFieldsAreKept(t *testing.T) {
	m, unknown := decode(t, `{ "zeal": {"b": 1, "a": [2.50, 9007199254740993]}, "name": "a", "rev": 7, "age": null,
		"place": { "zone": "z", "hall": "<4>", "rack": { "unit": 3, "height": 2 } }, "plan": { "reason": "r", "by": "x" }, "Free": { "x": 1 } }`)
	if want := []string{"age", "place.hall", "place.rack.height", "plan.by", "zeal"}; !slices.Equal(unknown.Names(), want) {
		t.Errorf("unknown are %v, want %v", unknown.Names(), want)
	}
	m.Rev, m.Place.Zone, m.note = 8, "y", "not stored"
	want := `{"name":"a","rev":8,"place":{"zone":"y","rack":{"unit":3,"height":2},"hall":"<4>"},` +
		`"plan":{"reason":"r","by":"x"},"Free":{"x":1},"age":null,"zeal":{"b":1,"a":[2.50,9007199254740993]}}`
	for range 10 {
		if got := encode(t, m, unknown); got != want {
			t.Fatalf("written\n%s, want\n%s", got, want)
		}
	}
	if _, again := decode(t, want); !reflect.DeepEqual(again, unknown) {
		t.Errorf("read again as %v, want %v", again.Names(), unknown.Names())
	}
}

// TestUnknownFieldGoesWithItsObject: a nested object's unknown fields are dropped with it.
func TestUnknownFieldGoesWithItsObject(t *testing.T) {
	m, unknown := decode(t, `{"name":"a","rev":1,"plan":{"reason":"r","by":"x"},"place":{},"Free":null,"later":1}`)
	m.Plan = nil
	if got, want := encode(t, m, unknown), `{"name":"a","rev":1,"place":{},"Free":null,"later":1}`; got != want {
		t.Errorf("written %s, want %s", got, want)
	}
}

func TestKnownFieldsAreWrittenOnce(t *testing.T) {
	m, unknown := decode(t, `{"NAME":"a","Rev":1,"Place":{"ZONE":"z","hall":1}}`)
	if want := []string{"place.hall"}; !slices.Equal(unknown.Names(), want) {
		t.Errorf("unknown are %v, want %v", unknown.Names(), want)
	}
	if got, want := encode(t, m, unknown), `{"name":"a","rev":1,"place":{"zone":"z","hall":1},"Free":null}`; got != want {
		t.Errorf("written %s, want %s", got, want)
	}
}

func TestRecordsOfThisVersionAreAsBefore(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	m := machine{
		Name: "a", Rev: 1, Since: &at, Place: place{Rack: &rack{Unit: 2}}, Plan: &plan{Reason: "<"},
		Tags: []string{"t"}, Free: map[string]any{"b": "c"},
	}
	plain, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back, unknown := decode(t, string(plain))
	if !unknown.IsZero() || len(unknown.Names()) != 0 || !reflect.DeepEqual(back, m) {
		t.Errorf("read %+v with %v, want %+v", back, unknown.Names(), m)
	}
	if got := encode(t, back, unknown); got != string(plain) {
		t.Errorf("written %s, want %s", got, plain)
	}
}

func TestWhatIsNoRecordIsRefused(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `{"name":1}`, `{"name":"a"}{}`, `{"later":1,"name":1}`, `{"later":}`, `{"since":"soon"}`} {
		if m, _, err := record.Decode[machine]([]byte(body)); err == nil {
			t.Errorf("%s is read as %+v", body, m)
		}
	}
	_, unknown := decode(t, `{"later":1}`)
	if body, err := record.Encode([]int{1}, unknown); err == nil || !strings.Contains(err.Error(), "object") {
		t.Errorf("a list with fields is written as %s, %v", body, err)
	}
}

// TestNumbersThatCanOnlyBeDamage: the error has the field, the value and the limit.
func TestNumbersThatCanOnlyBeDamage(t *testing.T) {
	if err := record.CheckNumber("rev", record.MaxNumber); err != nil {
		t.Error(err)
	}
	err := record.CheckNumber("rev", record.MaxNumber+1)
	if want := "rev: 9007199254740993, want at most 9007199254740992"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","rev":1,"place":{"zone":"z","hall":1},"plan":{"reason":"r","by":"x"},"later":{"x":[1,2]}}`))
	f.Add([]byte(`{"Name":"a","PLACE":{"Hall":1,"rack":null},"place":{"rack":{"height":1}}}`))
	f.Add([]byte(`{"name":"a","rev":9007199254740993}`))
	f.Add([]byte(`{"name":"a","rev":18446744073709551616}`))
	f.Add([]byte(`{"":1,"\u003c":2,"name\u0000":"\ud800"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, unknown, err := record.Decode[machine](body)
		if err != nil {
			return
		}
		text, err := record.Encode(m, unknown)
		if err != nil {
			t.Fatalf("%q was read, and can't be written: %v", body, err)
		}
		back, again, err := record.Decode[machine](text)
		if err != nil {
			t.Fatalf("%q was written, and can't be read: %v", text, err)
		}
		if !reflect.DeepEqual(back, m) {
			t.Errorf("%q changed %+v to %+v", text, m, back)
		}
		second, err := record.Encode(back, again)
		if err != nil || string(second) != string(text) {
			t.Errorf("%q is written again as %q, %v", text, second, err)
		}
	})
}
