package registrytest

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Handler is an empty registry, with the referrers API or without. Its answers are those
// of the OCI distribution specification: what a manifest says of itself is in the list,
// which the library's registry leaves out.
func Handler(referrers bool) http.Handler {
	plain := registry.New(registry.WithReferrersSupport(referrers), registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repository, _, list := strings.Cut(r.URL.Path, "/referrers/")
		if !referrers || !list {
			plain.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		plain.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		var index v1.IndexManifest
		if answer.Code == http.StatusOK && json.Unmarshal(body, &index) == nil {
			annotate(plain, r, repository, index.Manifests)
			if told, err := json.Marshal(index); err == nil {
				body = told
			}
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = io.Copy(w, bytes.NewReader(body)) // a client that has gone
	})
}

// annotate adds what the manifests say of themselves.
func annotate(from http.Handler, r *http.Request, repository string, manifests []v1.Descriptor) {
	for i := range manifests {
		r := r.Clone(r.Context())
		r.URL.Path = repository + "/manifests/" + manifests[i].Digest.String()
		answer := httptest.NewRecorder()
		from.ServeHTTP(answer, r)
		if m, err := v1.ParseManifest(answer.Body); err == nil {
			manifests[i].Annotations = m.Annotations
		}
	}
}
