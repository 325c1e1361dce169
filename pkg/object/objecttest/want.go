package objecttest

import (
	"errors"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/object"
)

func put(t *testing.T, s object.Store, key, body string, pre object.Precondition) object.ETag {
	t.Helper()
	etag, err := s.Put(t.Context(), key, []byte(body), pre)
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	if etag == "" {
		t.Fatalf("put %q: empty etag", key)
	}
	return etag
}

func list(t *testing.T, s object.Store, prefix string) []object.Info {
	t.Helper()
	infos, err := object.All(t.Context(), s, prefix)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	return infos
}

func wantObject(t *testing.T, s object.Store, key, body string, etag object.ETag) {
	t.Helper()
	o, err := s.Get(t.Context(), key)
	if err != nil {
		t.Errorf("get %q: %v", key, err)
		return
	}
	if o.Key != key || string(o.Body) != body || o.ETag != etag || o.Size != int64(len(body)) {
		t.Errorf("get %q: key %q, body %.40q of size %d, etag %q; want body %.40q, etag %q", key, o.Key, o.Body, o.Size, o.ETag, body, etag)
	}
}

func wantKeys(t *testing.T, s object.Store, prefix string, want ...string) {
	t.Helper()
	got := []string{}
	for _, i := range list(t, s, prefix) {
		got = append(got, i.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("list %q: %.2000q, want %.2000q", prefix, got, want)
	}
}

func wantErr(t *testing.T, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: error %v, want %v", what, err, w)
		}
	}
}
