package s3_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/s3"
)

// TestEncryption: only writes request the encryption, and all do.
func TestEncryption(t *testing.T) {
	const sse, key = "X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"
	for setting, want := range map[string][2]string{
		"": {}, "AES256": {"AES256"}, "aws:kms": {"aws:kms"}, "aws:kms:alias/ours": {"aws:kms", "alias/ours"},
	} {
		w := newWire(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"new"`)
			w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		})
		s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url, Encryption: setting})
		if _, err := s.Put(t.Context(), "a", []byte("b"), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		for _, r := range w.sent() {
			expect := want
			if r.method != http.MethodPut {
				expect = [2]string{}
			}
			if got := [2]string{r.header.Get(sse), r.header.Get(key)}; got != expect {
				t.Errorf("%q: %s asks for %q, want %q", setting, r.method, got, expect)
			}
		}
	}
}
