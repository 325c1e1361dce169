package objecttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// The parts of the suite that a store may skip: Nstance stores no key inside another one's, and
// lists no prefix with a segment of dots.
const (
	KeysInsideKeys = "KeysInsideKeys"
	DotPrefixes    = "DotPrefixes"
)

// Run checks the whole contract of object.Store. open returns an empty store on each call; it
// cleans up through t. except names parts that the store is documented not to support.
func Run(t *testing.T, open func(t *testing.T) object.Store, except ...string) {
	for _, c := range []struct {
		name string
		test func(*testing.T, object.Store)
	}{
		{"GetPutDelete", testGetPutDelete},
		{"Bodies", testBodies},
		{"BodyBelongsToCaller", testBodyBelongsToCaller},
		{"Info", testInfo},
		{"IfAbsent", testIfAbsent},
		{"IfMatch", testIfMatch},
		{"ETagOfDeleted", testETagOfDeleted},
		{"UnusualKeys", testUnusualKeys},
		{KeysInsideKeys, testKeysInsideKeys},
		{"InvalidKeys", testInvalidKeys},
		{"Prefixes", testPrefixes},
		{DotPrefixes, testDotPrefixes},
		{"ListMany", testListMany},
		{"ListWhileWriting", testListWhileWriting},
		{"IncrementRace", testIncrementRace},
		{"AbsentRace", testAbsentRace},
		{"DeleteRace", testDeleteRace},
		{"CancelledContext", testCancelledContext},
		{"Probe", testProbe},
		{"Settle", testSettle},
	} {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(except, c.name) {
				t.Skip("the store is documented not to do this")
			}
			t.Parallel()
			c.test(t, open(t))
		})
	}
}

func testGetPutDelete(t *testing.T, s object.Store) {
	ctx := t.Context()
	_, err := s.Get(ctx, "a/b")
	wantErr(t, "get of an absent object", err, object.ErrNotFound)
	if err := s.Delete(ctx, "a/b"); err != nil {
		t.Errorf("delete of an absent object: %v", err)
	}
	first := put(t, s, "a/b", "one", object.Precondition{})
	wantObject(t, s, "a/b", "one", first)
	second := put(t, s, "a/b", "two", object.Precondition{})
	if second == first {
		t.Errorf("etag %q did not change with the body", first)
	}
	wantObject(t, s, "a/b", "two", second)
	if err := s.Delete(ctx, "a/b"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(ctx, "a/b")
	wantErr(t, "get of a deleted object", err, object.ErrNotFound)
	wantKeys(t, s, "")
	wantObject(t, s, "a/b", "three", put(t, s, "a/b", "three", object.Precondition{}))
}

func testBodies(t *testing.T, s object.Store) {
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	for name, body := range map[string][]byte{
		"nil": nil, "empty": {}, "zero": {0}, "newlines": []byte("\r\n\n\x00\n"), "big": big,
	} {
		etag := put(t, s, "bodies/"+name, string(body), object.Precondition{})
		wantObject(t, s, "bodies/"+name, string(body), etag)
	}
	// A shorter body leaves nothing of a longer one behind.
	wantObject(t, s, "bodies/big", "x", put(t, s, "bodies/big", "x", object.Precondition{}))
	wantObject(t, s, "bodies/zero", "", put(t, s, "bodies/zero", "", object.Precondition{}))
}

func testBodyBelongsToCaller(t *testing.T, s object.Store) {
	body := []byte("mine")
	if _, err := s.Put(t.Context(), "k", body, object.Precondition{}); err != nil {
		t.Fatal(err)
	}
	body[0] = 'X'
	o, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if string(o.Body) != "mine" {
		t.Errorf("the store kept the caller's slice: %q", o.Body)
	}
	o.Body[0] = 'Y'
	wantObject(t, s, "k", "mine", o.ETag)
}

func testInfo(t *testing.T, s object.Store) {
	before := time.Now().Add(-2 * time.Second) // S3 times have a resolution of a second
	etag := put(t, s, "info", "12345", object.Precondition{})
	o, err := s.Get(t.Context(), "info")
	if err != nil {
		t.Fatal(err)
	}
	listed := list(t, s, "info")
	if len(listed) != 1 {
		t.Fatalf("listed %v, want one object", listed)
	}
	for from, got := range map[string]object.Info{"get": o.Info, "list": listed[0]} {
		if got.Key != "info" || got.Size != 5 || got.ETag != etag {
			t.Errorf("%s: %+v, want key info, size 5, etag %q", from, got, etag)
		}
		if got.ModTime.Before(before) || got.ModTime.After(time.Now().Add(2*time.Second)) {
			t.Errorf("%s: modification time %v is not now", from, got.ModTime)
		}
	}
}

func testIfAbsent(t *testing.T, s object.Store) {
	etag := put(t, s, "k", "one", object.IfAbsent())
	_, err := s.Put(t.Context(), "k", []byte("two"), object.IfAbsent())
	wantErr(t, "if-absent on a present object", err, object.ErrConflict)
	wantObject(t, s, "k", "one", etag)
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	wantObject(t, s, "k", "three", put(t, s, "k", "three", object.IfAbsent()))
}

func testIfMatch(t *testing.T, s object.Store) {
	_, err := s.Put(t.Context(), "k", []byte("x"), object.IfMatch("0123456789abcdef0123456789abcdef"))
	wantErr(t, "if-match on an absent object", err, object.ErrConflict)
	_, err = s.Get(t.Context(), "k")
	wantErr(t, "get after a refused put", err, object.ErrNotFound)

	first := put(t, s, "k", "one", object.IfAbsent())
	second := put(t, s, "k", "two", object.IfMatch(first))
	if second == first {
		t.Errorf("etag %q did not change", first)
	}
	for _, stale := range []object.ETag{first, "", "*", "no-such-etag"} {
		_, err = s.Put(t.Context(), "k", []byte("three"), object.IfMatch(stale))
		wantErr(t, fmt.Sprintf("if-match of %q", stale), err, object.ErrConflict)
	}
	wantObject(t, s, "k", "two", second)
}

// testETagOfDeleted uses a new body, as every writer must: an etag may be a hash.
func testETagOfDeleted(t *testing.T, s object.Store) {
	old := put(t, s, "k", "one", object.Precondition{})
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Put(t.Context(), "k", []byte("two"), object.IfMatch(old))
	wantErr(t, "if-match on a deleted object", err, object.ErrConflict)
	again := put(t, s, "k", "three", object.IfAbsent())
	_, err = s.Put(t.Context(), "k", []byte("four"), object.IfMatch(old))
	wantErr(t, "if-match with the etag of an earlier life", err, object.ErrConflict)
	wantObject(t, s, "k", "three", again)
}

// unusual returns keys that a backend may quote, decode or sort wrongly.
func unusual() []string {
	return []string{
		"plain", "with space", "ends with space ", "per%cent", "%2e%2e", "%2F", "plus+sign", "q?uery=1&x", "ha#sh", "am&p;",
		"quote\"s'", "<xml>", "back\\slash", "co:lon;semi,comma", "(paren)[bracket]{brace}", "~tilde", "@at", "$d!*^|`=",
		".hidden", "...", "a..b", "-dash", "ümläut/日本語/🙂", "UPPER", "upper", "d/d.d/d.o/o.o", "k.o", "k.d", "tmp", "live",
		"cluster/ca.crt", "1", "a/0000000000000001", strings.Repeat("n", object.MaxSegment),
		strings.Repeat("deep/", 100) + "end",
	}
}

func testUnusualKeys(t *testing.T, s object.Store) {
	keys := unusual()
	for _, k := range keys {
		put(t, s, k, "body of "+k, object.IfAbsent())
	}
	for _, k := range keys {
		o, err := s.Get(t.Context(), k)
		if err != nil || string(o.Body) != "body of "+k || o.Key != k {
			t.Errorf("get %q = key %q, body %q, %v", k, o.Key, o.Body, err)
		}
	}
	slices.Sort(keys)
	wantKeys(t, s, "", keys...)
	for _, k := range keys {
		if err := s.Delete(t.Context(), k); err != nil {
			t.Errorf("delete %q: %v", k, err)
		}
	}
	wantKeys(t, s, "")
}

func testInvalidKeys(t *testing.T, s object.Store) {
	for _, k := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "nul\x00", "new\nline", "bad\xffutf",
		strings.Repeat("n", object.MaxSegment+1),
	} {
		_, err := s.Get(t.Context(), k)
		wantErr(t, fmt.Sprintf("get %q", k), err, object.ErrInvalidKey)
		_, err = s.Put(t.Context(), k, []byte("x"), object.Precondition{})
		wantErr(t, fmt.Sprintf("put %q", k), err, object.ErrInvalidKey)
		wantErr(t, fmt.Sprintf("delete %q", k), s.Delete(t.Context(), k), object.ErrInvalidKey)
	}
	wantKeys(t, s, "")
}

func testCancelledContext(t *testing.T, s object.Store) {
	etag := put(t, s, "k", "one", object.Precondition{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "k")
	wantErr(t, "get", err, object.ErrUnknown, context.Canceled)
	_, err = s.Put(ctx, "k", []byte("two"), object.Precondition{})
	wantErr(t, "put", err, object.ErrUnknown, context.Canceled)
	_, err = s.List(ctx, "", "")
	wantErr(t, "list", err, object.ErrUnknown, context.Canceled)
	wantErr(t, "delete", s.Delete(ctx, "k"), object.ErrUnknown, context.Canceled)
	wantObject(t, s, "k", "one", etag)
}

func testProbe(t *testing.T, s object.Store) {
	put(t, s, "probe/other", "stays", object.Precondition{})
	if err := object.Probe(t.Context(), s, "run-1"); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "", "probe/other")
}

// testIncrementRace increments a counter from many goroutines; a lost update would leave it too
// low.
func testIncrementRace(t *testing.T, s object.Store) {
	const writers, each = 8, 10
	put(t, s, "counter", "0 -", object.IfAbsent())
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				increment(t, s, "counter", strconv.Itoa(w))
			}
		})
	}
	wg.Wait()
	o, err := s.Get(t.Context(), "counter")
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := strings.Cut(string(o.Body), " "); n != strconv.Itoa(writers*each) {
		t.Errorf("counter is %s after %d increments", n, writers*each)
	}
}

func increment(t *testing.T, s object.Store, key, who string) {
	for {
		o, err := s.Get(t.Context(), key)
		if err != nil {
			t.Errorf("get: %v", err)
			return
		}
		digits, _, _ := strings.Cut(string(o.Body), " ")
		n, err := strconv.Atoi(digits)
		if err != nil {
			t.Errorf("counter holds %q", o.Body)
			return
		}
		_, err = s.Put(t.Context(), key, fmt.Appendf(nil, "%d %s", n+1, who), object.IfMatch(o.ETag))
		if err == nil {
			return
		}
		if !errors.Is(err, object.ErrConflict) {
			t.Errorf("put: %v", err)
			return
		}
	}
}

func testAbsentRace(t *testing.T, s object.Store) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d/once", round)
		wins := raceAbsent(t, s, key, 8)
		if len(wins) != 1 {
			t.Fatalf("%d winners of one if-absent race: %v", len(wins), wins)
		}
		o, err := s.Get(t.Context(), key)
		if err != nil || string(o.Body) != wins[0] {
			t.Errorf("get = %q, %v; the winner wrote %q", o.Body, err, wins[0])
		}
	}
}

func raceAbsent(t *testing.T, s object.Store, key string, n int) []string {
	var mu sync.Mutex
	var wins []string
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			body := fmt.Sprintf("writer %d", w)
			_, err := s.Put(t.Context(), key, []byte(body), object.IfAbsent())
			switch {
			case err == nil:
				mu.Lock()
				wins = append(wins, body)
				mu.Unlock()
			case !errors.Is(err, object.ErrConflict):
				t.Errorf("put: %v", err)
			}
		})
	}
	wg.Wait()
	return wins
}

// testDeleteRace creates and deletes one key from many goroutines. In any order, each winner's
// write is complete, and the last state is one of the two.
func testDeleteRace(t *testing.T, s object.Store) {
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 5 {
				body := fmt.Sprintf("writer %d, round %d", w, i)
				_, err := s.Put(t.Context(), "a/k", []byte(body), object.IfAbsent())
				if err != nil && !errors.Is(err, object.ErrConflict) && !errors.Is(err, object.ErrUnknown) {
					t.Errorf("put: %v", err)
				}
				o, err := s.Get(t.Context(), "a/k")
				if err == nil && !bytes.HasPrefix(o.Body, []byte("writer ")) || err != nil && !errors.Is(err, object.ErrNotFound) {
					t.Errorf("get = %q, %v", o.Body, err)
				}
				if err := s.Delete(t.Context(), "a/k"); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	_, err := s.Get(t.Context(), "a/k")
	wantErr(t, "get after the last delete", err, object.ErrNotFound)
	wantKeys(t, s, "")
	wantObject(t, s, "a/k", "again", put(t, s, "a/k", "again", object.IfAbsent()))
}
