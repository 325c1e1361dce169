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

// Handler returns an empty registry, with the referrers API or without. As the OCI distribution
// specification requires, and unlike the library's registry, its list of referrers has their
// annotations.
func Handler(referrers bool) http.Handler {
	plain := registry.New(registry.WithReferrersSupport(referrers), registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repository, _, list := strings.Cut(r.URL.Path, "/referrers/")
		if !referrers || !list {
			plain.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		plain.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		var index v1.IndexManifest
		if recorder.Code == http.StatusOK && json.Unmarshal(body, &index) == nil {
			annotate(plain, r, repository, index.Manifests)
			if annotated, err := json.Marshal(index); err == nil {
				body = annotated
			}
		}
		w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
		w.WriteHeader(recorder.Code)
		_, _ = io.Copy(w, bytes.NewReader(body)) // the client may be gone
	})
}

// annotate adds the annotations of the manifests to their descriptors.
func annotate(from http.Handler, r *http.Request, repository string, manifests []v1.Descriptor) {
	for i := range manifests {
		r := r.Clone(r.Context())
		r.URL.Path = repository + "/manifests/" + manifests[i].Digest.String()
		recorder := httptest.NewRecorder()
		from.ServeHTTP(recorder, r)
		if m, err := v1.ParseManifest(recorder.Body); err == nil {
			manifests[i].Annotations = m.Annotations
		}
	}
}
