package registry_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker/registry"
	"github.com/nstance/nstance/pkg/provider/docker/registry/registrytest"
	"github.com/nstance/nstance/pkg/provider/docker/signature"
)

// TestVerify: what the key signed verifies, and whatever somebody who can write to the
// registry might offer instead does not; with the referrers API and without.
func TestVerify(t *testing.T) {
	for name, referrers := range map[string]bool{"referrers": true, "tags": false} {
		t.Run(name, func(t *testing.T) {
			host := registrytest.Serve(t, registrytest.Handler(referrers))
			signer, other := registrytest.NewSigner(t), registrytest.NewSigner(t)
			about := func(reference string) string { _, digest, _ := strings.Cut(reference, "@"); return digest }
			attach := func(bundle func(reference string) []byte, says string) func(string) {
				return func(reference string) { registrytest.Attach(t, reference, bundle(reference), says) }
			}
			sbom := attach(func(reference string) []byte { return signer.Bundle(t, registrytest.SBOM, about(reference)) }, registrytest.SBOM)
			for what, c := range map[string]struct {
				attach []func(reference string)
				want   string // empty: it verifies
			}{
				"signed":       {[]func(string){func(reference string) { signer.Sign(t, reference) }}, ""},
				"unsigned":     {nil, "none at all"},
				"another key":  {[]func(string){func(reference string) { other.Sign(t, reference) }}, "another key"},
				"an SBOM only": {[]func(string){sbom}, "which is no signature"},
				"an SBOM that says it is a signature": {[]func(string){
					attach(func(reference string) []byte { return signer.Bundle(t, registrytest.SBOM, about(reference)) }, signature.PredicateType),
				}, "which is no signature"},
				"nothing about signatures": {[]func(string){func(reference string) { registrytest.AttachOther(t, reference) }}, "none at all"},
				"of another image": {[]func(string){attach(func(string) []byte {
					return signer.Bundle(t, signature.PredicateType, "sha256:"+strings.Repeat("ab", 32))
				}, signature.PredicateType)}, "a signature of another image"},
				"altered": {[]func(string){attach(func(reference string) []byte {
					return []byte(strings.Replace(string(signer.Bundle(t, signature.PredicateType, about(reference))), `"sig":"`, `"sig":"AAAA`, 1))
				}, signature.PredicateType)}, "altered"},
				"no bundle": {[]func(string){attach(func(string) []byte { return []byte("x") }, "")}, "no signature bundle"},
				"too long":  {[]func(string){attach(func(string) []byte { return make([]byte, signature.MaxBundle+2) }, "")}, "want at most"},
				"among others": {[]func(string){
					sbom, func(reference string) { other.Sign(t, reference) }, attach(func(string) []byte { return []byte("x") }, ""),
					func(reference string) { signer.Sign(t, reference) },
				}, ""},
			} {
				reference := registrytest.Push(t, host+"/agent:v1", registrytest.Image(t))
				for _, attach := range c.attach {
					attach(reference)
				}
				err := registry.New("").Verify(t.Context(), reference, signer.Key(t))
				if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v, want %q", what, err, c.want)
				}
			}
		})
	}
}

// TestManyBundles: one who fills the registry with bundles keeps no create busy for
// ever, and can't hide a signature that says what it is.
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
	for range 70 {
		registrytest.Attach(t, reference, other.Bundle(t, registrytest.SBOM, "sha256:"+strings.Repeat("ab", 32)), "")
	}
	err := registry.New("").Verify(t.Context(), reference, signer.Key(t))
	if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "first 64 of 70") || blobs.Load() != 64 {
		t.Errorf("%v after %d blobs", err, blobs.Load())
	}
	signer.Sign(t, reference)
	if err := registry.New("").Verify(t.Context(), reference, signer.Key(t)); err != nil {
		t.Error(err)
	}
}

// TestDamaged: what is not the bytes that its digest names is as good as not there;
// what can't be read for another reason may be read later.
func TestDamaged(t *testing.T) {
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
		answer   http.HandlerFunc
		definite bool
	}{
		"other bytes": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("other")) }, true},
		"gone":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, true},
		"broken":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, false},
	} {
		damage.Store(&c.answer)
		if err := registry.New("").Verify(t.Context(), reference, signer.Key(t)); err == nil || provider.Definite(err) != c.definite {
			t.Errorf("%s: %v", name, err)
		}
	}
	damage.Store(nil)
	if err := registry.New("").Verify(t.Context(), reference, signer.Key(t)); err != nil {
		t.Error(err)
	}
}
