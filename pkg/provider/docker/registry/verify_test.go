package registry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// TestVerify: what the key signed verifies, and nothing else that is attached to the image
// does; with the referrers API and without.
func TestVerify(t *testing.T) {
	for name, referrers := range map[string]bool{"referrers": true, "tags": false} {
		t.Run(name, func(t *testing.T) {
			host := registrytest.Serve(t, registrytest.Handler(referrers))
			signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
			about := func(reference string) string { _, digest, _ := strings.Cut(reference, "@"); return digest }
			attach := func(bundle func(reference string) []byte, predicate string) func(string) {
				return func(reference string) { registrytest.Attach(t, reference, bundle(reference), predicate) }
			}
			sbom := attach(func(reference string) []byte { return signer.Bundle(t, registrytest.SBOM, about(reference)) }, registrytest.SBOM)
			for what, c := range map[string]struct {
				attach []func(reference string)
				want   string // empty: verified
			}{
				"signed":      {[]func(string){func(reference string) { signer.Sign(t, reference) }}, ""},
				"unsigned":    {nil, "has none for it"},
				"another key": {[]func(string){func(reference string) { other.Sign(t, reference) }}, "another key"},
				"SBOM only":   {[]func(string){sbom}, "which is not a signature"},
				"SBOM annotated as a signature": {[]func(string){
					attach(func(reference string) []byte { return signer.Bundle(t, registrytest.SBOM, about(reference)) }, signature.PredicateType),
				}, "which is not a signature"},
				"another artifact": {[]func(string){func(reference string) { registrytest.AttachOther(t, reference) }}, "has none for it"},
				"signature of another image": {[]func(string){attach(func(string) []byte {
					return signer.Bundle(t, signature.PredicateType, "sha256:"+strings.Repeat("ab", 32))
				}, signature.PredicateType)}, "a signature of another image"},
				"altered": {[]func(string){attach(func(reference string) []byte {
					return []byte(strings.Replace(string(signer.Bundle(t, signature.PredicateType, about(reference))), `"sig":"`, `"sig":"AAAA`, 1))
				}, signature.PredicateType)}, "altered"},
				"invalid bundle":   {[]func(string){attach(func(string) []byte { return []byte("x") }, "")}, "no signature bundle"},
				"oversized bundle": {[]func(string){attach(func(string) []byte { return make([]byte, signature.MaxBundle+2) }, "")}, "want at most"},
				"among other bundles": {[]func(string){
					sbom, func(reference string) { other.Sign(t, reference) }, attach(func(string) []byte { return []byte("x") }, ""),
					func(reference string) { signer.Sign(t, reference) },
				}, ""},
			} {
				reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
				for _, attach := range c.attach {
					attach(reference)
				}
				err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen))
				if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v, want %q", what, err, c.want)
				}
			}
		})
	}
}

// TestManyBundles: many bundles of other keys that are annotated as signatures, as an attacker
// could push them, do not hide the signature, and are not read again.
func TestManyBundles(t *testing.T) {
	served := registrytest.Handler(true)
	var blobs atomic.Int64
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			blobs.Add(1)
		}
		served.ServeHTTP(w, r)
	}))
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	const foreign = 200
	for range foreign {
		other.Sign(t, reference)
	}
	c, seen := registry.New(""), new(registry.Seen)
	for range 2 {
		err := c.Verify(t.Context(), reference, signer.Key(t), seen)
		if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "of its 200 referrers") || blobs.Load() != foreign {
			t.Errorf("%v after %d blobs", err, blobs.Load())
		}
	}
	signer.Sign(t, reference)
	if err := c.Verify(t.Context(), reference, signer.Key(t), seen); err != nil || blobs.Load() != foreign+1 {
		t.Errorf("%v after %d blobs", err, blobs.Load())
	}
	if err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen)); err != nil {
		t.Error(err)
	}
}

// referrersOf returns a registry's list of an image's referrers, and its content type.
func referrersOf(t *testing.T, registry http.Handler, r *http.Request) (index v1.IndexManifest, contentType string) {
	recorder := httptest.NewRecorder()
	registry.ServeHTTP(recorder, r)
	if err := json.Unmarshal(recorder.Body.Bytes(), &index); err != nil {
		t.Error(err)
	}
	return index, recorder.Header().Get("Content-Type")
}

// TestManyDeletedReferrers: more deleted manifests in the list than are read in one call delay
// the signature behind them by one call.
func TestManyDeletedReferrers(t *testing.T) {
	const deleted = 1100
	served := registrytest.Handler(true)
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/referrers/") {
			served.ServeHTTP(w, r)
			return
		}
		index, contentType := referrersOf(t, served, r)
		var all []v1.Descriptor
		for n := range deleted {
			d := index.Manifests[0]
			d.Digest.Hex = fmt.Sprintf("%064x", n)
			d.Annotations = map[string]string{"dev.sigstore.bundle.predicateType": signature.PredicateType}
			all = append(all, d)
		}
		index.Manifests = append(all, index.Manifests...)
		w.Header().Set("Content-Type", contentType)
		_ = json.NewEncoder(w).Encode(index)
	}))
	signer := registrytest.NewSigner(t)
	reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	signer.Sign(t, reference)
	c, seen := registry.New(""), new(registry.Seen)
	if err := c.Verify(t.Context(), reference, signer.Key(t), seen); err == nil || provider.Definite(err) {
		t.Errorf("the first call: %v, want a temporary error", err)
	}
	if err := c.Verify(t.Context(), reference, signer.Key(t), seen); err != nil {
		t.Errorf("the second call: %v", err)
	}
}

// TestPages: the signature is found on any page of the list, and a link to another host is not
// followed.
func TestPages(t *testing.T) {
	served := registrytest.Handler(true)
	var link atomic.Pointer[string]
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/referrers/") {
			served.ServeHTTP(w, r)
			return
		}
		// Two at a time, as registries with pages do.
		index, _ := referrersOf(t, served, r)
		// The library's order differs each time.
		slices.SortFunc(index.Manifests, func(a, b v1.Descriptor) int { return strings.Compare(a.Digest.Hex, b.Digest.Hex) })
		from, _ := strconv.Atoi(r.URL.Query().Get("from"))
		to := min(from+2, len(index.Manifests))
		if to < len(index.Manifests) {
			next := fmt.Sprintf("%s?from=%d", r.URL.Path, to)
			if other := link.Load(); other != nil {
				next = *other
			}
			w.Header().Set("Link", "<"+next+`>; rel="next"`)
		}
		index.Manifests = index.Manifests[from:to]
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(index)
	}))
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	for _, before := range []int{0, 1, 2, 3, 6} {
		reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
		for range before {
			other.Sign(t, reference)
		}
		signer.Sign(t, reference)
		other.Sign(t, reference)
		if err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen)); err != nil {
			t.Errorf("after %d others: %v", before, err)
		}
		elsewhere := "http://elsewhere.example/v2/agent/referrers/x"
		link.Store(&elsewhere)
		err := registry.New("").Verify(t.Context(), reference, registrytest.NewSigner(t).Key(t), new(registry.Seen))
		if before > 0 && (err == nil || provider.Definite(err) || !strings.Contains(err.Error(), "referrers list: "+elsewhere)) {
			t.Errorf("a page elsewhere after %d others: %v", before, err)
		}
		link.Store(nil)
	}
}

// TestUnreadableReferrers: unreadable bundles of other keys do not hide the signature; without
// one, they make the error temporary.
func TestUnreadableReferrers(t *testing.T) {
	served := registrytest.Handler(true)
	var broken atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := broken.Load(); h != nil && (*h)(w, r) {
			return
		}
		served.ServeHTTP(w, r)
	}))
	signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
	for name, respond := range map[string]http.HandlerFunc{
		"broken":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"refused":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"endless":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5<<20)) },
		"aborted":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"too slow": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			broken.Store(nil)
			reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
			theirs := map[string]bool{}
			for range 3 {
				theirs[other.Sign(t, reference)] = true
			}
			own := signer.Sign(t, reference)
			breakManifests := func(digests map[string]bool) {
				h := func(w http.ResponseWriter, r *http.Request) bool {
					for digest := range digests {
						if strings.HasSuffix(r.URL.Path, "/manifests/"+digest) && r.Method == http.MethodGet {
							respond(w, r)
							return true
						}
					}
					return false
				}
				broken.Store(&h)
			}
			breakManifests(theirs)
			if err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen)); err != nil {
				t.Errorf("with unreadable bundles of another key: %v", err)
			}
			if name != "broken" {
				return
			}
			all := maps.Clone(theirs) // a cancelled request may still read the others
			all[own] = true
			breakManifests(all)
			c, seen := registry.New(""), new(registry.Seen)
			if err := c.Verify(t.Context(), reference, signer.Key(t), seen); err == nil || provider.Definite(err) {
				t.Errorf("with no readable bundle: %v", err)
			}
			broken.Store(nil)
			if err := c.Verify(t.Context(), reference, signer.Key(t), seen); err != nil {
				t.Errorf("with readable bundles: %v", err)
			}
		})
	}
}

// TestRepositoryOfSignature: a signature that names a repository is valid only there, so that a
// copy of image and signature elsewhere does not verify.
func TestRepositoryOfSignature(t *testing.T) {
	host := registrytest.Serve(t, registrytest.Handler(true))
	signer := registrytest.NewSigner(t)
	image := registrytest.Image(t)
	for repository, c := range map[string]struct{ named, want string }{
		"/ra": {"", ""}, "/rb": {host + "/rb", ""}, "/rc": {host + "/rc:v1", ""}, "/rd": {"docker://" + host + "/rd", ""},
		"/re": {host + "/ra", "in another repository"}, "/rf": {"f", "in another repository"},
		"/rg": {"other.example/g", "in another repository"},
	} {
		reference := registrytest.Push(t, host+repository+":v1", image)
		_, digest, _ := strings.Cut(reference, "@")
		registrytest.Attach(t, reference, signer.BundleOf(t, signature.PredicateType, c.named, digest), signature.PredicateType)
		err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen))
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, with a signature for %q: %v, want %q", reference, c.named, err, c.want)
		}
	}
}

// TestDamagedBundle: a bundle that does not match its digest counts as missing; one that can't
// be read for another reason is a temporary error.
func TestDamagedBundle(t *testing.T) {
	served := registrytest.Handler(true)
	var damage atomic.Pointer[http.HandlerFunc]
	host := registrytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := damage.Load(); h != nil && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			(*h)(w, r)
			return
		}
		served.ServeHTTP(w, r)
	}))
	signer := registrytest.NewSigner(t)
	reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
	signer.Sign(t, reference)
	for name, c := range map[string]struct {
		respond  http.HandlerFunc
		definite bool
	}{
		"other bytes": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("other")) }, true},
		"gone":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, true},
		"broken":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, false},
	} {
		damage.Store(&c.respond)
		err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen))
		if err == nil || provider.Definite(err) != c.definite {
			t.Errorf("%s: %v", name, err)
		}
	}
	damage.Store(nil)
	if err := registry.New("").Verify(t.Context(), reference, signer.Key(t), new(registry.Seen)); err != nil {
		t.Error(err)
	}
}
