package agent

import (
	"encoding/base64"
	"path/filepath"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

func FuzzReadNonce(f *testing.F) {
	for _, claims := range []string{
		`{"cluster_id":"example","shard":"dev-1"}`, `{"cluster_id":1}`, `{"sub":"x","cluster_id":"a","shard":"c"}`,
		`[]`, `null`, `{}`, "", `{"cluster_id":"a/b","shard":"c"}`,
		`{"cluster_id":"a","shard":"c","exp":1e300}`, `{"cluster_id":"a","shard":"c","exp":1893456000.5}`,
	} {
		f.Add("e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln")
	}
	f.Add("a.b")
	f.Add("...")
	f.Fuzz(func(t *testing.T, nonce string) {
		c, err := readNonce(nonce)
		if err != nil {
			return
		}
		h, ends := c.home, c.ends
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

func FuzzParseOwner(f *testing.F) {
	for _, seed := range []string{"knd01h455vb4pex5vsknk084sn02q\n", "", "x", "../../etc", "knd01h455vb4pex5vsknk084sn02q/.."} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		id := parseOwner(text)
		if id == "" {
			return
		}
		if again, err := fleet.ParseID(string(id)); err != nil || again != id {
			t.Fatalf("%q is taken as %q: %v", text, id, err)
		}
		if folder := asideFolder(id, time.Time{}); filepath.Base(folder) != folder {
			t.Fatalf("%q gives the folder %q", text, folder)
		}
	})
}
