package registry_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
)

const indexType = "application/vnd.oci.image.index.v1+json"

// TestIncompleteReferrersList: if an image's referrers can't be listed completely, a missing
// signature is a temporary error with the reason. A signature among those that were listed is
// accepted.
func TestIncompleteReferrersList(t *testing.T) {
	padding := strings.Repeat(" ", 1<<20)
	long := func(w http.ResponseWriter, listed string) {
		_, _ = fmt.Fprintf(w, `{"manifests":[%s`, listed)
		for range 33 {
			_, _ = w.Write([]byte(padding))
		}
		_, _ = w.Write([]byte("]}"))
	}
	for name, c := range map[string]struct {
		page func(w http.ResponseWriter, n int, one v1.Descriptor)
		tags bool // the registry has a referrers tag instead of the API
		lost bool // nothing of the list can be used
		want string
	}{
		"too many referrers": {page: func(w http.ResponseWriter, n int, one v1.Descriptor) {
			many := make([]v1.Descriptor, 22_000)
			for i := range many {
				many[i] = one
			}
			w.Header().Set("Link", fmt.Sprintf(`<?from=%d>; rel="next"`, n+1))
			_ = json.NewEncoder(w).Encode(v1.IndexManifest{Manifests: many})
		}, want: "more than 65536"},
		"too many pages": {page: func(w http.ResponseWriter, n int, one v1.Descriptor) {
			w.Header().Set("Link", fmt.Sprintf(`<?from=%d>; rel="next"`, n+1))
			_ = json.NewEncoder(w).Encode(v1.IndexManifest{Manifests: []v1.Descriptor{one}})
		}, want: "more than 1024 pages"},
		"oversized page": {page: func(w http.ResponseWriter, _ int, one v1.Descriptor) {
			text, _ := json.Marshal(one)
			long(w, string(text))
		}, want: "more than 33554432 bytes"},
		"truncated page": {page: func(w http.ResponseWriter, _ int, one v1.Descriptor) {
			text, _ := json.Marshal(one)
			_, _ = fmt.Fprintf(w, `{"manifests":[%s,`, text)
		}, want: "read the referrers list after"},
		"missing second page": {page: func(w http.ResponseWriter, n int, one v1.Descriptor) {
			if n > 0 {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Add("Link", `</other>; rel="first"`)
			w.Header().Add("Link", `<?from=1>; title="more"; rel=next`)
			_ = json.NewEncoder(w).Encode(v1.IndexManifest{Manifests: []v1.Descriptor{one}})
		}, want: "page 2"},
		"oversized tag": {page: func(w http.ResponseWriter, _ int, _ v1.Descriptor) {
			long(w, "")
		}, tags: true, lost: true, want: "more than 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			served := registrytest.Handler(!c.tags)
			var one v1.Descriptor
			host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path := "/referrers/"
				if c.tags {
					path = "/manifests/sha256-"
				}
				if !strings.Contains(r.URL.Path, path) || r.Method != http.MethodGet || one.Size == 0 {
					served.ServeHTTP(w, r)
					return
				}
				n, _ := strconv.Atoi(r.URL.Query().Get("from"))
				w.Header().Set("Content-Type", indexType)
				c.page(w, n, one)
			}))
			signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
			reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
			list := func(digest string) {
				_, hex, _ := strings.Cut(digest, ":")
				one = v1.Descriptor{MediaType: "application/vnd.oci.image.manifest.v1+json", Size: 1, Digest: v1.Hash{Algorithm: "sha256", Hex: hex}}
			}
			theirs, ours := other.Sign(t, reference), signer.Sign(t, reference)
			list(theirs)
			err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen))
			if err == nil || provider.Definite(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("no signature of the key in the list: %v, want %q", err, c.want)
			}
			list(ours)
			if err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen)); err != nil && !c.lost {
				t.Errorf("a signature of the key in the list: %v", err)
			}
		})
	}
}
