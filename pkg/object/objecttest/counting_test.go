package objecttest_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

func TestCounting(t *testing.T) {
	s := objecttest.NewCounting(mem.New(mem.Config{PageSize: 2}))
	ctx := t.Context()
	for _, k := range []string{"a", "b", "c"} {
		if _, err := s.Put(ctx, k, nil, object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Counts()
	_, _ = s.Put(ctx, "a", nil, object.IfAbsent()) // refused, and counted
	_, _ = s.Get(ctx, "absent")
	if err := s.Delete(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if all, err := object.All(ctx, s, ""); err != nil || len(all) != 2 {
		t.Fatalf("listed %v, %v", all, err)
	}
	want := objecttest.Counts{Get: 1, Put: 1, Delete: 1, List: 1}
	if got := s.Counts().Sub(before); got != want || got.Total() != 4 {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestCountingConformance(t *testing.T) {
	objecttest.Run(t, func(*testing.T) object.Store { return objecttest.NewCounting(mem.New(mem.Config{})) })
}
