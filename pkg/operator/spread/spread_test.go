package spread_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/operator/spread"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// of makes known and selected shards of these sizes.
func of(sizes ...int) []spread.Shard {
	var all []spread.Shard
	for _, n := range sizes {
		all = append(all, spread.Shard{Size: n, Selected: true})
	}
	return all
}

// with changes one of them.
func with(all []spread.Shard, i int, change func(*spread.Shard)) []spread.Shard {
	all = slices.Clone(all)
	change(&all[i])
	return all
}

func unknown(s *spread.Shard)    { s.Unknown = true }
func fixed(s *spread.Shard)      { s.Fixed = true }
func deselected(s *spread.Shard) { s.Selected = false }
func named(n int) func(*spread.Shard) {
	return func(s *spread.Shard) { s.Named = n }
}
func missing(n int) func(*spread.Shard) {
	return func(s *spread.Shard) { s.Missing = n }
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas int
		shards   []spread.Shard
		want     []int
	}{
		{"the start, equal shares", 6, of(0, 0), []int{3, 3}},
		{"the start, the rest to the first", 8, of(0, 0, 0), []int{3, 3, 2}},
		{"nothing to share", 0, of(0, 0), []int{0, 0}},
		{"no shard", 3, nil, []int{}},
		{"as it is", 7, of(7, 0), []int{7, 0}},
		{"growth goes to the smallest", 9, of(4, 1, 2), []int{4, 3, 2}},
		{"one more, a tie", 7, of(3, 3), []int{4, 3}},
		{"one less, a tie", 5, of(3, 3), []int{3, 2}},
		{"less, from the largest", 5, of(1, 7), []int{1, 4}},
		{"to nothing", 0, of(2, 3), []int{0, 0}},
		{"less than nothing", -1, of(2, 3), []int{0, 0}},

		{"a victim on the smaller shard", 6, with(of(4, 3), 1, named(1)), []int{4, 2}},
		{"fewer victims than leave", 4, with(of(4, 3), 1, named(1)), []int{2, 2}},
		{"more victims than leave", 6, with(of(4, 3), 1, named(3)), []int{4, 2}},
		{"a victim and no shrinking", 7, with(of(4, 3), 1, named(1)), []int{4, 3}},
		{"more victims than it has", 2, with(of(4, 1), 1, named(3)), []int{2, 0}},

		{"what has not come leaves first", 6, with(of(4, 4), 0, missing(2)), []int{2, 4}},
		{"and then what has", 4, with(of(4, 4), 0, missing(2)), []int{2, 2}},
		{"where more have not come", 5, with(with(of(4, 4), 0, missing(1)), 1, missing(2)), []int{3, 2}},
		{"a victim leaves before them", 6, with(with(of(4, 3), 0, missing(1)), 1, named(1)), []int{4, 2}},
		{"a victim of the same shard leaves before them", 5, with(with(of(4, 3), 1, missing(1)), 1, named(1)), []int{4, 1}},
		{"more than it has", 2, with(of(1, 3), 0, missing(5)), []int{0, 2}},
		{"the deselected shrinks before them", 6, with(with(of(4, 3), 0, missing(1)), 1, deselected), []int{4, 2}},
		{"a fixed one waits on", 5, with(with(of(3, 3), 0, missing(1)), 0, fixed), []int{3, 2}},
		{"missing and no shrinking", 7, with(of(4, 3), 0, missing(2)), []int{4, 3}},

		{"growth passes by the deselected", 8, with(of(3, 3), 0, deselected), []int{3, 5}},
		{"the deselected shrinks first", 5, with(of(1, 6), 0, deselected), []int{0, 5}},
		{"and is not emptied otherwise", 6, with(of(3, 3), 0, deselected), []int{3, 3}},
		{"nothing selected, growth", 8, with(of(3), 0, deselected), []int{3}},
		{"nothing selected, shrinking", 2, with(of(3), 0, deselected), []int{2}},

		{"an unknown one holds its share", 6, with(of(0, 0), 1, unknown), []int{3, 0}},
		{"the first is unknown", 5, with(of(0, 0, 0), 0, unknown), []int{0, 2, 1}},
		{"what is there stays for an unknown one", 6, with(of(6, 0), 1, unknown), []int{6, 0}},
		{"an unknown one that is not selected", 6, with(with(of(2, 0), 1, unknown), 1, deselected), []int{6, 0}},
		{"shrinking beside an unknown one", 4, with(of(6, 0), 1, unknown), []int{4, 0}},
		{"a fixed one counts", 7, with(of(1, 3, 3), 0, fixed), []int{1, 3, 3}},
		{"and gets nothing", 8, with(of(1, 3, 3), 0, fixed), []int{1, 4, 3}},
		{"and gives nothing", 5, with(of(7, 2), 0, fixed), []int{7, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := spread.Next(c.replicas, c.shards); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func shards(t *rapid.T) []spread.Shard {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) spread.Shard {
		s := spread.Shard{
			Size:     rapid.IntRange(0, 12).Draw(t, "size"),
			Unknown:  rapid.IntRange(0, 5).Draw(t, "unknown") == 0,
			Fixed:    rapid.IntRange(0, 5).Draw(t, "fixed") == 0,
			Selected: rapid.IntRange(0, 3).Draw(t, "selected") != 0,
		}
		if s.Unknown {
			s.Size = 0
		}
		s.Named = rapid.IntRange(0, s.Size).Draw(t, "named")
		s.Missing = rapid.IntRange(0, s.Size).Draw(t, "missing")
		return s
	}), 0, 6).Draw(t, "shards")
}

func sum(n []int) (total int) {
	for _, x := range n {
		total += x
	}
	return total
}

func TestWhatHoldsOfEveryStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas, all := rapid.IntRange(0, 40).Draw(t, "replicas"), shards(t)
		got := spread.Next(replicas, all)
		before, free, canGrow, canShrink, someUnknown := 0, 0, false, 0, false
		grew, shrank, names := false, false, 0
		for i, s := range all {
			before += s.Size
			someUnknown = someUnknown || s.Unknown
			if s.Unknown || s.Fixed {
				if got[i] != s.Size {
					t.Fatalf("shard %d went from %d to %d", i, s.Size, got[i])
				}
				continue
			}
			free++
			canGrow = canGrow || s.Selected
			canShrink += s.Size
			names += s.Named
			grew, shrank = grew || got[i] > s.Size, shrank || got[i] < s.Size
			if got[i] < 0 || (got[i] > s.Size && !s.Selected) {
				t.Fatalf("shard %d went from %d to %d", i, s.Size, got[i])
			}
		}
		if grew && shrank {
			t.Fatal("one shard grows while another shrinks")
		}
		switch by := before - replicas; {
		case by >= 0 && before-sum(got) != min(by, canShrink):
			t.Fatalf("%d remain of %d, want %d", sum(got), before, replicas)
		case by < 0 && canGrow && !someUnknown && sum(got) != replicas, by < 0 && sum(got) > replicas:
			t.Fatalf("%d of %d", sum(got), replicas)
		case by >= names:
			for i, s := range all {
				if !s.Unknown && !s.Fixed && got[i] > s.Size-s.Named {
					t.Fatalf("%d of shard %d, want the %d that are named gone", got[i], i, s.Named)
				}
			}
		}
		level(t, all, got)
	})
}

// level holds that what changed is even: no shard got one that has more than another had to
// have, and none gave one that has fewer.
func level(t *rapid.T, all []spread.Shard, got []int) {
	for i, a := range all {
		for j, b := range all {
			if a.Unknown || a.Fixed || b.Unknown || b.Fixed {
				continue
			}
			if got[i] > a.Size && b.Selected && got[i] > got[j]+1 {
				t.Fatalf("shard %d grew to %d beside %d", i, got[i], got[j])
			}
			gave := got[i] < a.Size-a.Named
			waits := got[j] > max(b.Size-b.Missing-b.Named, 0)
			if gave && a.Selected == b.Selected && waits && got[i] < a.Size-a.Named-a.Missing {
				t.Fatalf("shard %d gave one that had come, and shard %d waits for %d", i, j, b.Missing)
			}
			if gave && a.Selected == b.Selected && a.Missing+b.Missing == 0 && got[j] > got[i]+1 {
				t.Fatalf("shard %d gave until it had %d beside %d", i, got[i], got[j])
			}
			if gave && a.Selected && !b.Selected && got[j] > 0 {
				t.Fatalf("shard %d gave before shard %d, which is not selected", i, j)
			}
		}
	}
}

func TestASecondStepChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas, all := rapid.IntRange(0, 40).Draw(t, "replicas"), shards(t)
		first := spread.Next(replicas, all)
		for i := range all {
			all[i].Size, all[i].Named = first[i], 0
		}
		if second := spread.Next(replicas, all); !slices.Equal(first, second) {
			t.Fatalf("%v, then %v", first, second)
		}
	})
}

// Whatever an unknown shard turns out to have, no other shard has to create again what was
// removed from it.
func TestNothingIsTakenForAnUnknownShard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas, all := rapid.IntRange(0, 40).Draw(t, "replicas"), shards(t)
		got := spread.Next(replicas, all)
		for i, s := range all {
			if got[i] < s.Size && sum(got) < replicas {
				t.Fatalf("shard %d went from %d to %d, and %d remain of %d", i, s.Size, got[i], sum(got), replicas)
			}
		}
	})
}

func TestVictims(t *testing.T) {
	all := []spread.Machine{
		{ID: "d", Tainted: true}, {ID: "c", Annotated: true}, {ID: "b"}, {ID: "a", Tainted: true}, {ID: "e", Annotated: true, Shard: 1},
		{ID: "0", Annotated: true, Leaving: true}, {ID: "1", Leaving: true}, {ID: "z", Deleting: true, Annotated: true},
		{ID: "y", Deleting: true},
	}
	for by, want := range map[int]string{
		-1: "", 0: "", 1: "y", 2: "yz", 3: "yzc", 4: "yzce", 5: "yzcea", 6: "yzcead", 7: "yzcead0", 9: "yzcead0",
	} {
		got := ""
		for _, m := range spread.Victims(by, all) {
			got += m.ID
		}
		if got != want {
			t.Errorf("%d leave: %q, want %q", by, got, want)
		}
	}
}

func TestExcess(t *testing.T) {
	all := append(of(4, 3), spread.Shard{Size: 9, Unknown: true})
	for replicas, want := range map[int]int{6: 1, 7: 0, 8: 0, 0: 7} {
		if got := spread.Excess(replicas, all); got != want {
			t.Errorf("%d replicas: %d, want %d", replicas, got, want)
		}
	}
}
