package images_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/images"
)

// fixture is a cache and a cloud with images.
type fixture struct {
	*images.Cache
	world *fake.World

	mu       sync.Mutex
	reported []string
}

func (f *fixture) problems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reported
}

func debian(day int) fake.Image {
	return fake.Image{
		ID: fmt.Sprintf("ami-%d", day), Name: fmt.Sprintf("debian-%02d", day), CreatedAt: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
	}
}

func image(pattern, fallback string) images.Image {
	return images.Image{Fallback: fallback, Query: provider.ImageQuery{
		Sort: "creation-date", Order: "desc", Filters: []provider.ImageFilter{{Name: "name", Values: []string{pattern}}},
	}}
}

func bubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{world: fake.New(fake.Config{AsideLatency: fake.Fixed(time.Second), Images: []fake.Image{debian(1), debian(2)}})}
		f.Cache = images.New(f.config(f.world.Open(provider.Scope{ClusterID: "c", Shard: "s"}, "a")))
		test(t, f)
	})
}

func (f *fixture) config(resolver provider.ImageResolver) images.Config {
	return images.Config{
		Resolver: resolver,
		Interval: func() time.Duration { return 6 * time.Hour }, Timeout: func() time.Duration { return 10 * time.Second },
		Report: func(name string, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.reported = append(f.reported, name+": "+err.Error())
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func (f *fixture) lookups() int { return len(f.world.Calls(fake.OpImage)) }

// run refreshes the used images until the test ends.
func (f *fixture) run(t *testing.T, used map[string]images.Image) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { f.Run(ctx, func() map[string]images.Image { return used }) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

func TestOneLookupForAllWhoAsk(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				got, err := f.Resolve(t.Context(), map[string]images.Image{"os": image("debian-*", "")})
				if err != nil || got["os"] != "ami-2" {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		all.Wait()
		if _, err := f.Resolve(t.Context(), map[string]images.Image{"os": image("debian-*", "")}); err != nil || f.lookups() != 1 {
			t.Errorf("%d lookups, %v", f.lookups(), err)
		}
		if got, err := f.Resolve(t.Context(), map[string]images.Image{"os": image("debian-01", "")}); err != nil || got["os"] != "ami-1" {
			t.Errorf("after its definition changed: %v, %v", got, err)
		}
	})
}

func TestRefreshKeepsTheLastGoodID(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		used := map[string]images.Image{"os": image("debian-*", "ami-fallback")}
		f.run(t, used)
		time.Sleep(2 * time.Second)
		if !maps.Equal(f.Known(), map[string]string{"os": "ami-2"}) {
			t.Fatalf("at first: %v", f.Known())
		}
		f.world.AddImage(debian(3))
		time.Sleep(5 * time.Hour)
		if f.Known()["os"] != "ami-2" || f.lookups() != 1 {
			t.Errorf("before the interval: %v after %d lookups", f.Known(), f.lookups())
		}
		time.Sleep(2 * time.Hour)
		if f.Known()["os"] != "ami-3" {
			t.Errorf("after the interval: %v", f.Known())
		}
		for _, id := range []string{"ami-1", "ami-2", "ami-3"} {
			f.world.RemoveImage(id)
		}
		time.Sleep(6 * time.Hour)
		if p := f.problems(); f.Known()["os"] != "ami-3" || len(p) == 0 || !strings.Contains(p[0], "ami-3") {
			t.Errorf("after it was withdrawn: %v, %v", f.Known(), p)
		}
		if n := f.lookups(); n > 4+6*20 {
			t.Errorf("%d lookups", n)
		}
		f.world.AddImage(debian(4))
		time.Sleep(10 * time.Minute)
		if f.Known()["os"] != "ami-4" {
			t.Errorf("a failed lookup is not repeated before the interval: %v", f.Known())
		}
	})
}

func TestFallbackAndFailure(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		wanted := map[string]images.Image{
			"good": image("debian-*", ""), "saved": image("nothing-*", "ami-saved"),
			"fixed": {Fallback: "ami-fixed"}, "lost": image("nothing-*", ""),
		}
		got, err := f.Resolve(t.Context(), wanted)
		want := map[string]string{"good": "ami-2", "saved": "ami-saved", "fixed": "ami-fixed"}
		if !maps.Equal(got, want) || !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), "images.lost") ||
			strings.Contains(err.Error(), "images.saved") {
			t.Errorf("%v, %v", got, err)
		}
		if !maps.Equal(f.Known(), want) || f.lookups() != 3 || len(f.problems()) != 2 {
			t.Errorf("known %v after %d lookups, problems %v", f.Known(), f.lookups(), f.problems())
		}
		// Repeated calls cause no more lookups.
		for range 10 {
			if _, err := f.Resolve(t.Context(), wanted); err == nil || f.lookups() != 3 {
				t.Errorf("asked again: %v, %d lookups", err, f.lookups())
			}
		}
		f.world.AddImage(fake.Image{ID: "ami-late", Name: "nothing-1"})
		time.Sleep(time.Minute)
		if got, err := f.Resolve(t.Context(), wanted); err != nil || got["lost"] != "ami-late" {
			t.Errorf("once it is there: %v, %v", got, err)
		}
		f.run(t, wanted)
		time.Sleep(10 * time.Minute)
		if f.Known()["saved"] != "ami-late" {
			t.Errorf("the fallback outlives what it stood in for: %v", f.Known())
		}
	})
}

func TestProviderThatHangsOrCannot(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.world.FailNext(fake.OpImage, 1, fake.Fault{Hang: true})
		wanted := map[string]images.Image{"os": image("debian-*", "")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Resolve(ctx, wanted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that gives up: %v", err)
		}
		began := time.Now()
		if _, err := f.Resolve(t.Context(), wanted); err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("a lookup without end: %v after %v", err, time.Since(began))
		}

		cannot := images.New(f.config(nil))
		wanted["saved"] = image("debian-*", "ami-saved")
		got, err := cannot.Resolve(t.Context(), wanted)
		if !errors.Is(err, provider.ErrUnsupported) || !strings.Contains(err.Error(), "images.os") || got["saved"] != "ami-saved" {
			t.Errorf("a provider that can't: %v, %v", got, err)
		}
	})
}

// Lookups end with their term: nothing is looked up or reported after it.
func TestNothingGoesOnAfterRun(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.world.FailNext(fake.OpImage, 1, fake.Fault{Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { f.Run(ctx, func() map[string]images.Image { return nil }) })
		wanted := map[string]images.Image{"os": image("debian-*", "")}
		done.Go(func() {
			if _, err := f.Resolve(t.Context(), wanted); err == nil {
				t.Error("a lookup that hangs found something")
			}
		})
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		done.Wait()
		if took := time.Since(began); took > 0 || len(f.problems()) != 0 {
			t.Errorf("the lookup went on for %v, problems %v", took, f.problems())
		}
		if _, err := f.Resolve(t.Context(), wanted); err == nil || f.lookups() != 1 {
			t.Errorf("after the end: %v, %d lookups", err, f.lookups())
		}
	})
}

// A failure is reported again before a shard-wide problem counts as over, five minutes after
// its last report.
func TestFailureIsReportedForAsLongAsItLasts(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.run(t, map[string]images.Image{"os": image("nothing-*", "ami-saved")})
		time.Sleep(time.Minute)
		for range 12 {
			before := len(f.problems())
			time.Sleep(5*time.Minute - 5*time.Second)
			if len(f.problems()) == before {
				t.Fatalf("nothing reported for five minutes: %v", f.problems())
			}
		}
	})
}

func TestUnusedImagesAreNotLookedUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		if _, err := f.Resolve(t.Context(), map[string]images.Image{"old": image("debian-01", "")}); err != nil {
			t.Fatal(err)
		}
		f.run(t, map[string]images.Image{"os": image("debian-*", "")})
		time.Sleep(13 * time.Hour)
		if !maps.Equal(f.Known(), map[string]string{"os": "ami-2"}) || f.lookups() != 4 {
			t.Errorf("known %v after %d lookups, want one before and three refreshes", f.Known(), f.lookups())
		}
	})
}
