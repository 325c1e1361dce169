package election_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server/election"
)

const goodRecord = `{"holder":"a","epoch":3,"rev":7,"addrs":{"election":"h:1","registration":"h:2","operator":"h:3","agent":"h:4"},` +
	`"lease_duration":"30s","fence_window":"1s","released":true}`

func TestParseRecord(t *testing.T) {
	got, err := election.ParseRecord([]byte(goodRecord))
	if err != nil {
		t.Fatal(err)
	}
	want := election.Record{
		Holder: "a", Epoch: 3, Rev: 7, LeaseDuration: 30 * time.Second, FenceWindow: time.Second, Released: true,
		Addrs: election.Addrs{Election: "h:1", Registration: "h:2", Operator: "h:3", Agent: "h:4"},
	}
	if got != want {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
	for _, c := range []struct{ name, old, new, says string }{
		{"no holder", `"holder":"a"`, `"holder":""`, "holder"},
		{"long holder", `"holder":"a"`, `"holder":"` + strings.Repeat("a", 257) + `"`, "holder"},
		{"epoch 0", `"epoch":3`, `"epoch":0`, "epoch"},
		{"negative epoch", `"epoch":3`, `"epoch":-3`, "epoch"},
		{"rev 0", `"rev":7`, `"rev":0`, "rev"},
		{"lease of nothing", `"30s"`, `"0s"`, "lease_duration"},
		{"lease of ages", `"30s"`, `"900h"`, "lease_duration"},
		{"window is a number", `"1s"`, `1`, "fence_window"},
		{"window is no duration", `"1s"`, `"soon"`, "fence_window"},
		{"long successor", `"rev":7`, `"rev":7,"successor":"` + strings.Repeat("a", 257) + `"`, "successor"},
		{"trailing data", `"released":true}`, `"released":true}{}`, "more than one"},
		{"cut short", `"released":true}`, `"released":`, "EOF"},
		{"too big", `"released":true}`, `"released":true}` + strings.Repeat(" ", 70_000), "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := election.ParseRecord([]byte(strings.Replace(goodRecord, c.old, c.new, 1)))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v, want one that says %q", err, c.says)
			}
		})
	}
}

// TestNewerRecords: unknown fields of a later version must not prevent this one from
// following, or from taking a released record.
func TestNewerRecords(t *testing.T) {
	plain, err := election.ParseRecord([]byte(goodRecord))
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.NewReplacer(
		`"rev":7`, `"rev":7,"reason":{"by":"x"}`, `"agent":"h:4"`, `"agent":"h:4","metrics":"h:5"`,
	).Replace(goodRecord)
	r, err := election.ParseRecord([]byte(newer))
	if err != nil || r != plain {
		t.Errorf("parsed %+v, %v, want %+v", r, err, plain)
	}
	l, err := election.ParseLine([]byte(`{"server":"a","etag":"e7","rev":7,"load":0.5,"record":` + newer + `}`))
	if err != nil || l.Record == nil || *l.Record != plain {
		t.Errorf("parsed %+v, %v", l, err)
	}
	if body, err := json.Marshal(r); err != nil || string(body) != goodRecord {
		t.Errorf("written as %s, %v", body, err)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(goodRecord))
	f.Add([]byte(`{"holder":"a","epoch":18446744073709551615,"rev":1,"addrs":{},"lease_duration":"1h","fence_window":"1ns"}`))
	f.Add([]byte(strings.Replace(goodRecord, `"released":true`, `"released":true,"successor":"b"`, 1)))
	f.Add([]byte(`{"holder":"a","epoch":1,"rev":9007199254740993,"addrs":{},"lease_duration":"1h","fence_window":"1ns"}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"holder":"a","Epoch":1,"rev":1,"lease_duration":"1h1","fence_window":"-1s"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := election.ParseRecord(b)
		if err != nil {
			return
		}
		if r.Holder == "" || r.Epoch == 0 || r.Rev == 0 || r.Rev > election.MaxEpoch || r.LeaseDuration <= 0 || r.FenceWindow <= 0 {
			t.Errorf("accepted %+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := election.ParseRecord(again); err != nil || back != r {
			t.Errorf("%+v does not survive a round trip: %+v %v", r, back, err)
		}
	})
}

func TestParseLine(t *testing.T) {
	first := `{"server":"a","etag":"e7","rev":7,"record":` + goodRecord + `}`
	if l, err := election.ParseLine([]byte(first)); err != nil || l.Record == nil || l.Record.Holder != "a" {
		t.Errorf("parsed %+v %v", l, err)
	}
	for _, good := range []string{
		`{"server":"a"}`, `{"etag":"e8","rev":8}`, `{"etag":"e8","rev":8,"ask":2}`, `{"etag":"e9","rev":9,"released":true}`,
	} {
		if _, err := election.ParseLine([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		``, `null`, `{}`, `[]`, `{"server":"a","released":true}`, `{"server":"a","etag":"e","rev":8,"record":` + goodRecord + `}`,
		`{"server":"a","rev":7,"record":` + goodRecord + `}`, `{"extra":1}`, `{"server":"` + strings.Repeat("a", 300) + `"}`,
	} {
		if l, err := election.ParseLine([]byte(bad)); err == nil {
			t.Errorf("%.60s is accepted as %+v", bad, l)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"server":"a","etag":"e7","rev":7,"record":` + goodRecord + `}`))
	f.Add([]byte(`{"etag":"e8","rev":8}`))
	f.Add([]byte(`{"etag":"e8","rev":8,"ask":2}`))
	f.Add([]byte(`{"etag":"e9","rev":9,"released":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := election.ParseLine(b)
		if err != nil {
			return
		}
		if l.Server == "" && l.ETag == "" {
			t.Errorf("accepted %+v", l)
		}
		if l.Record != nil && l.Record.Rev != l.Rev {
			t.Errorf("accepted two revs: %+v", l)
		}
	})
}
