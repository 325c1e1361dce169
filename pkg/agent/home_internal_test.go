package agent

import (
	"encoding/base64"
	"testing"
)

func FuzzReadNonce(f *testing.F) {
	for _, claims := range []string{
		`{"cluster_id":"example","shard":"dev-1"}`, `{"cluster_id":1}`, `[]`, `null`, `{}`, "", `{"cluster_id":"a/b","shard":"c"}`,
		`{"cluster_id":"a","shard":"c","exp":1e300}`, `{"cluster_id":"a","shard":"c","exp":1893456000.5}`,
	} {
		f.Add("e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln")
	}
	f.Add("a.b")
	f.Add("...")
	f.Fuzz(func(t *testing.T, nonce string) {
		h, ends, err := readNonce(nonce)
		if err != nil {
			return
		}
		if !ends.IsZero() && (ends.Unix() < 0 || ends.Year() > 10000) {
			t.Fatalf("%q ends at %s", nonce, ends)
		}
		if again, err := parseHome(h.String()); err != nil || again != h {
			t.Fatalf("%q gives %v, which is read back as %v, %v", nonce, h, again, err)
		}
	})
}

func FuzzParseHome(f *testing.F) {
	for _, seed := range []string{
		"spiffe://example/server/dev-1", " spiffe://example/server/dev-1\n", "spiffe://a/server/b/server/c", "spiffe://a/agent/b",
		"http://a/server/b", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		h, err := parseHome(id)
		if err != nil {
			return
		}
		if again, err := parseHome(h.String()); err != nil || again != h {
			t.Fatalf("%q gives %v, which is read back as %v, %v", id, h, again, err)
		}
	})
}
