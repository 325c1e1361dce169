package problems

import (
	"testing"
	"time"
)

// TestRecentIsBounded: the last things are known, and there are never many.
func TestRecentIsBounded(t *testing.T) {
	r, now := newRecent[int](), time.Unix(0, 0)
	for n := range 20 * maxRecent {
		r.add(n, now.Add(time.Duration(n)))
		if size := len(r.newer) + len(r.older); size > 2*maxRecent {
			t.Fatalf("%d are kept", size)
		}
	}
	last := 20*maxRecent - 1
	if at, ok := r.at(last - maxRecent + 1); !ok || !at.Equal(now.Add(time.Duration(last-maxRecent+1))) {
		t.Errorf("one of the last is %v, %v", at, ok)
	}
	if _, ok := r.at(0); ok {
		t.Error("the first is kept")
	}
	r.drop(last)
	if _, ok := r.at(last); ok {
		t.Error("dropped, and kept")
	}
}
