package broadcast_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/server/broadcast"
)

func takeAll(t *testing.T, r *broadcast.Reader[int]) (out []int) {
	t.Helper()
	for {
		n, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out = append(out, n)
	}
}

// TestFeed: first the given events, then every matching event, in order.
func TestFeed(t *testing.T) {
	var f broadcast.Feed[int]
	f.Publish(1)
	even := f.Subscribe(func(n int) bool { return n%2 == 0 }, []int{7, 9}, 10)
	all := f.Subscribe(func(int) bool { return true }, nil, 10)
	for n := range 5 {
		f.Publish(n)
	}
	<-even.Ready()
	if have := takeAll(t, even); !slices.Equal(have, []int{7, 9, 0, 2, 4}) {
		t.Errorf("read %v", have)
	}
	if have := takeAll(t, all); !slices.Equal(have, []int{0, 1, 2, 3, 4}) {
		t.Errorf("read %v", have)
	}
	even.Close()
	f.Publish(6)
	if have := takeAll(t, even); len(have) > 0 {
		t.Errorf("after it left: %v", have)
	}
}

// TestFeedCutOff: a reader with too many queued events fails for good, others do not.
func TestFeedCutOff(t *testing.T) {
	var f broadcast.Feed[int]
	slow := f.Subscribe(func(int) bool { return true }, []int{1, 2}, 3)
	quick := f.Subscribe(func(int) bool { return true }, nil, 3)
	for n := range 3 {
		f.Publish(n)
		takeAll(t, quick)
	}
	if n, ok, err := slow.Next(); n != 1 || !ok || err != nil {
		t.Errorf("with a full queue: %d, %t, %v", n, ok, err)
	}
	f.Publish(3)
	f.Publish(4)
	<-slow.Ready()
	for range 2 {
		if _, ok, err := slow.Next(); ok || !errors.Is(err, broadcast.ErrBehind) {
			t.Errorf("slow reader: %t, %v", ok, err)
		}
	}
	if have := takeAll(t, quick); !slices.Equal(have, []int{3, 4}) {
		t.Errorf("quick reader: %v", have)
	}
}
