package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/s3"
)

// TestLifecycleRules: the rules that keep current objects from being read at once, and no others.
func TestLifecycleRules(t *testing.T) {
	rule := func(inner string) string {
		if !strings.Contains(inner, "<Status>") {
			inner += "<Status>Enabled</Status>"
		}
		return `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><ID>r</ID>` + inner +
			`</Rule></LifecycleConfiguration>`
	}
	const days30 = "<Expiration><Days>30</Days></Expiration>"
	for name, c := range map[string]struct{ body, want string }{
		"everything":    {rule("<Filter></Filter>" + days30), `"" deletes objects after 30 days`},
		"no filter":     {rule(days30), `"" deletes objects after 30 days`},
		"a prefix":      {rule("<Filter><Prefix>config/</Prefix></Filter>" + days30), `"config/" deletes objects after 30 days`},
		"an old prefix": {rule("<Prefix>config/</Prefix>" + days30), `"config/" deletes objects after 30 days`},
		"a prefix and a size": {
			rule("<Filter><And><Prefix>c</Prefix><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan></And></Filter>" + days30),
			`"c" deletes objects after 30 days`,
		},
		"a date": {
			rule("<Filter/><Expiration><Date>2027-01-01T00:00:00.000Z</Date></Expiration>"), `"" deletes objects on 2027-01-01`,
		},
		"an archive": {
			rule("<Filter/><Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition>"),
			`"" moves objects to GLACIER after 90 days`,
		},
		"another class": {
			rule("<Filter/><Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition>"),
			`"" moves objects to STANDARD_IA after 30 days`,
		},
		"two classes": {
			rule("<Filter/><Transition><Days>90</Days><StorageClass>GLACIER</StorageClass></Transition>" +
				"<Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition>"),
			`"" moves objects to STANDARD_IA after 30 days`,
		},
		"a tag":           {rule("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>" + days30), ""},
		"disabled":        {rule("<Filter/>" + days30 + "<Status>Disabled</Status>"), ""},
		"former versions": {rule("<Filter/><NoncurrentVersionExpiration><NoncurrentDays>7</NoncurrentDays></NoncurrentVersionExpiration>"), ""},
		"deletion markers": {
			rule("<Filter/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"), "",
		},
		"no rule": {`<LifecycleConfiguration></LifecycleConfiguration>`, ""},
		"uploads that failed": {
			rule("<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>"), "",
		},
	} {
		w := newWire(t, func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, c.body) })
		rules, err := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url}).LifecycleRules(t.Context())
		var have []string
		for _, r := range rules {
			have = append(have, fmt.Sprintf("%q %s", r.Prefix, r.Does))
		}
		if got := strings.Join(have, ", "); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
		if sent := w.sent(); !slices.ContainsFunc(sent, func(r request) bool { return strings.Contains(r.query, "lifecycle") }) {
			t.Errorf("%s: sent %v", name, sent)
		}
	}
}

// TestLifecycleRulesUnknown: no rules, a refusal and no answer are three results.
func TestLifecycleRulesUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"none":     {document(http.StatusNotFound, "NoSuchLifecycleConfiguration"), nil},
		"refused":  {document(http.StatusForbidden, "AccessDenied"), object.ErrRefused},
		"unknown":  {document(http.StatusNotImplemented, "NotImplemented"), object.ErrRefused},
		"no store": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, object.ErrUnknown},
	} {
		rules, err := open(t, s3.Config{Bucket: "bucket", Endpoint: newWire(t, c.answer).url}).LifecycleRules(t.Context())
		if !errors.Is(err, c.want) || len(rules) > 0 {
			t.Errorf("%s: %v, %v", name, rules, err)
		}
	}
}
