package objecttest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/object"
)

// testKeysInsideKeys checks that a key may be a prefix folder of another one.
func testKeysInsideKeys(t *testing.T, s object.Store) {
	keys := []string{"a", "a/b", "a/b/c", "a-b", "a.b", "a0"}
	for _, k := range keys {
		put(t, s, k, "body of "+k, object.IfAbsent())
	}
	slices.Sort(keys)
	wantKeys(t, s, "", keys...)
	if err := s.Delete(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "a/", "a/b/c")
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "a", "a-b", "a.b", "a/b/c", "a0")
}

func testPrefixes(t *testing.T, s object.Store) {
	keys := []string{"instance/dev-1/a", "instance/dev-1/b", "instance/dev-10/a", "instance/dev-2/a", "instances", "leader/dev-1.json"}
	for _, k := range keys {
		put(t, s, k, k, object.Precondition{})
	}
	for prefix, want := range map[string][]string{
		"":                  keys,
		"i":                 keys[:5],
		"instance":          keys[:5],
		"instance/":         keys[:4],
		"instance/dev-1":    keys[:3],
		"instance/dev-1/":   keys[:2],
		"instance/dev-1/a":  keys[:1],
		"instance/dev-1/a/": nil,
		"instance/dev-1/ab": nil,
		"leader/dev-1.json": keys[5:],
		"no/such":           nil,
		"/":                 nil,
	} {
		wantKeys(t, s, prefix, want...)
	}
}

// testDotPrefixes lists by prefixes that end within or after a segment of dots: keys may begin
// with dots, but a parent path is not a key.
func testDotPrefixes(t *testing.T, s object.Store) {
	for _, k := range []string{".hidden", "...", "d/e"} {
		put(t, s, k, k, object.Precondition{})
	}
	wantKeys(t, s, ".", "...", ".hidden")
	wantKeys(t, s, "..", "...")
	wantKeys(t, s, "./")
	wantKeys(t, s, "../")
	wantKeys(t, s, "d/../d")
}

// testListMany creates more objects than a page of any backend.
func testListMany(t *testing.T, s object.Store) {
	const n = 1103
	want := make([]string, n)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				want[i] = fmt.Sprintf("many/%04d.json", i)
				if _, err := s.Put(t.Context(), want[i], []byte(want[i]), object.IfAbsent()); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
	}
	wg.Wait()
	put(t, s, "manz", "not of the prefix", object.Precondition{})
	wantKeys(t, s, "many/", want...)
	wantKeys(t, s, "many/05", want[500:600]...)

	small := 0
	for page, err := range object.Pages(object.WithPageSize(t.Context(), 7), s, "many/00") {
		if small += len(page); err != nil || len(page) > 7 {
			t.Fatalf("a page of %d objects where 7 were asked for, %v", len(page), err)
		}
	}
	if small != 100 {
		t.Errorf("%d objects in small pages, want 100", small)
	}

	page, err := s.List(t.Context(), "many/", "")
	if err != nil {
		t.Fatal(err)
	}
	if page.Next == "" || len(page.Objects) >= n {
		t.Errorf("a page of %d objects and token %q: a listing must be cut into pages", len(page.Objects), page.Next)
	}
}

// testListWhileWriting checks that an object that exists throughout is listed exactly once while
// others are created and deleted.
func testListWhileWriting(t *testing.T, s object.Store) {
	var stay []string
	for i := range 20 {
		stay = append(stay, fmt.Sprintf("l/%02d-stays", i))
		put(t, s, stay[i], "x", object.Precondition{})
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 20 {
			k := fmt.Sprintf("l/%02d-goes", i)
			put(t, s, k, "x", object.IfAbsent())
			put(t, s, stay[i], "rewritten", object.Precondition{})
			if err := s.Delete(t.Context(), k); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
	})
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		var got []string
		for _, i := range list(t, s, "l/") {
			if strings.HasSuffix(i.Key, "-stays") {
				got = append(got, i.Key)
			}
		}
		if !slices.Equal(got, stay) {
			t.Errorf("listed %q, want %q", got, stay)
			break
		}
	}
	wg.Wait()
}
