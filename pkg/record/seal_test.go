package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/record"
)

const sealed = "cluster/operator/a.json"

func seal(key string) record.Seal { return record.NewSeal([]byte(key)) }

func closed(t testing.TB, body string) string {
	t.Helper()
	out, err := seal("k").Close(sealed, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestSealOpens: a sealed record opens, whatever its formatting; a second seal replaces the
// first.
func TestSealOpens(t *testing.T) {
	body := closed(t, `{"a": 1.50, "b": {"c": [null, "x"]}, "unknown": "<>"}`)
	const want = `{"a":1.50,"b":{"c":[null,"x"]},"unknown":"<>"}`
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(body), "", "  "); err != nil {
		t.Fatal(err)
	}
	begin, rest, _ := strings.Cut(body, `,"b"`)
	turned := "{" + strings.TrimSuffix(`"b"`+rest, "}") + "," + strings.TrimPrefix(begin, "{") + "}"
	for name, text := range map[string]string{"as it was": body, "twice": closed(t, body), "pretty": pretty.String(), "turned": turned} {
		got, err := seal("k").Open(sealed, []byte(text))
		if err != nil || len(got) != len(want) || name != "turned" && string(got) != want {
			t.Errorf("%s: opened as %s, %v", name, got, err)
		}
	}
}

// TestSealRefuses: a changed record fails with ErrSeal.
func TestSealRefuses(t *testing.T) {
	body := closed(t, `{"a":1,"gone":"2030"}`)
	_, mark, _ := strings.Cut(body, `"seal":"`)
	mark = strings.TrimSuffix(mark, `"}`)
	for name, text := range map[string]string{
		"a field changed":        strings.Replace(body, `1`, `2`, 1),
		"a field taken out":      strings.Replace(body, `"gone":"2030",`, ``, 1),
		"a field added":          strings.Replace(body, `{`, `{"b":1,`, 1),
		"in another case":        strings.Replace(body, `{`, `{"GONE":null,`, 1),
		"there twice, first":     strings.Replace(body, `{`, `{"gone":null,`, 1),
		"there twice, last":      strings.Replace(body, `}`, `,"gone":null}`, 1),
		"the seal twice":         strings.Replace(body, `}`, `,"seal":"`+mark+`"}`, 1),
		"names and values moved": strings.Replace(body, `"a":1,"gone":"2030"`, `"a":1,"gon":"e2030"`, 1),
		"no seal":                `{"a":1,"gone":"2030"}`,
		"an empty seal":          `{"a":1,"gone":"2030","seal":""}`,
		"a null seal":            `{"a":1,"gone":"2030","seal":null}`,
		"a number for a seal":    `{"a":1,"gone":"2030","seal":1}`,
		"a part of the seal":     strings.Replace(body, mark, mark[:32], 1),
		"another key":            func() string { out, _ := seal("other").Close(sealed, []byte(`{"a":1}`)); return string(out) }(),
		"another name":           func() string { out, _ := seal("k").Close(sealed+"x", []byte(`{"a":1}`)); return string(out) }(),
		"no object":              `[` + body + `]`, "nothing": "", "two": body + body, "cut off": body[:len(body)-1], "null": "null",
	} {
		got, err := seal("k").Open(sealed, []byte(text))
		if !errors.Is(err, record.ErrSeal) || got != nil {
			t.Errorf("%s: opened as %s, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "null", "[]", `{"a":1,"a":2}`, `{"a":1}x`} {
		if out, err := seal("k").Close(sealed, []byte(text)); err == nil || !strings.Contains(err.Error(), sealed) {
			t.Errorf("%q is sealed as %s, %v", text, out, err)
		}
	}
	shown := fmt.Sprintf("%v %+v %#v", seal("kkkk"), seal("kkkk"), seal("kkkk"))
	if text := shown; strings.Contains(text, "107") || strings.Contains(text, "kkkk") {
		t.Errorf("the key is shown: %s", text)
	}
}

// FuzzSeal: only a record that was sealed opens, whatever was done to the text.
func FuzzSeal(f *testing.F) {
	const original = `{"id":"a","gone":"2030","n":{"m":[1,2]}}`
	body := closed(f, original)
	f.Add([]byte(body))
	f.Add([]byte(strings.Replace(body, `"gone"`, `"GONE"`, 1)))
	f.Add([]byte(original))
	f.Add([]byte(`{"seal":"00"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := seal("k").Open(sealed, text)
		if err != nil {
			if !errors.Is(err, record.ErrSeal) {
				t.Errorf("%s: %v", text, err)
			}
			return
		}
		again, err := seal("k").Close(sealed, got)
		if err != nil {
			t.Fatal(err)
		}
		var is, was map[string]json.RawMessage
		if json.Unmarshal(again, &is) != nil || json.Unmarshal([]byte(body), &was) != nil ||
			string(is["seal"]) != string(was["seal"]) || len(is) != len(was) {
			t.Errorf("%s opened as %s", text, got)
		}
	})
}
