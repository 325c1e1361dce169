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

// room is a cache over a cloud with images.
type room struct {
	*images.Cache
	world *fake.World

	mu       sync.Mutex
	reported []string
}

func (r *room) problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reported
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

func bubble(t *testing.T, f func(t *testing.T, r *room)) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{world: fake.New(fake.Config{AsideLatency: fake.Fixed(time.Second), Images: []fake.Image{debian(1), debian(2)}})}
		r.Cache = images.New(r.config(r.world.Open(provider.Scope{ClusterID: "c", Shard: "s"}, "a")))
		f(t, r)
	})
}

func (r *room) config(resolver provider.ImageResolver) images.Config {
	return images.Config{
		Resolver: resolver,
		Interval: func() time.Duration { return 6 * time.Hour }, Timeout: func() time.Duration { return 10 * time.Second },
		Report: func(name string, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reported = append(r.reported, name+": "+err.Error())
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func (r *room) lookups() int { return len(r.world.Calls(fake.OpImage)) }

// run refreshes what is used until the test ends.
func (r *room) run(t *testing.T, used map[string]images.Image) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { r.Run(ctx, func() map[string]images.Image { return used }) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

func TestOneLookupForAllWhoAsk(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				got, err := r.Resolve(t.Context(), map[string]images.Image{"os": image("debian-*", "")})
				if err != nil || got["os"] != "ami-2" {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		all.Wait()
		if _, err := r.Resolve(t.Context(), map[string]images.Image{"os": image("debian-*", "")}); err != nil || r.lookups() != 1 {
			t.Errorf("%d lookups, %v", r.lookups(), err)
		}
		if got, err := r.Resolve(t.Context(), map[string]images.Image{"os": image("debian-01", "")}); err != nil || got["os"] != "ami-1" {
			t.Errorf("after its definition changed: %v, %v", got, err)
		}
	})
}

func TestRefreshKeepsTheLastGoodID(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		used := map[string]images.Image{"os": image("debian-*", "ami-fallback")}
		r.run(t, used)
		time.Sleep(2 * time.Second)
		if !maps.Equal(r.Known(), map[string]string{"os": "ami-2"}) {
			t.Fatalf("at first: %v", r.Known())
		}
		r.world.AddImage(debian(3))
		time.Sleep(5 * time.Hour)
		if r.Known()["os"] != "ami-2" || r.lookups() != 1 {
			t.Errorf("before the interval: %v after %d lookups", r.Known(), r.lookups())
		}
		time.Sleep(2 * time.Hour)
		if r.Known()["os"] != "ami-3" {
			t.Errorf("after the interval: %v", r.Known())
		}
		for _, id := range []string{"ami-1", "ami-2", "ami-3"} {
			r.world.RemoveImage(id)
		}
		time.Sleep(6 * time.Hour)
		if p := r.problems(); r.Known()["os"] != "ami-3" || len(p) == 0 || !strings.Contains(p[0], "ami-3") {
			t.Errorf("after it was withdrawn: %v, %v", r.Known(), p)
		}
		if n := r.lookups(); n > 4+6*20 {
			t.Errorf("%d lookups", n)
		}
		r.world.AddImage(debian(4))
		time.Sleep(10 * time.Minute)
		if r.Known()["os"] != "ami-4" {
			t.Errorf("a failed lookup is not repeated before the interval: %v", r.Known())
		}
	})
}

func TestFallbackAndFailure(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		wanted := map[string]images.Image{
			"good": image("debian-*", ""), "saved": image("nothing-*", "ami-saved"),
			"fixed": {Fallback: "ami-fixed"}, "lost": image("nothing-*", ""),
		}
		got, err := r.Resolve(t.Context(), wanted)
		want := map[string]string{"good": "ami-2", "saved": "ami-saved", "fixed": "ami-fixed"}
		if !maps.Equal(got, want) || !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), "images.lost") ||
			strings.Contains(err.Error(), "images.saved") {
			t.Errorf("%v, %v", got, err)
		}
		if !maps.Equal(r.Known(), want) || r.lookups() != 3 || len(r.problems()) != 2 {
			t.Errorf("known %v after %d lookups, problems %v", r.Known(), r.lookups(), r.problems())
		}
		// Those who ask again at once cause no more lookups.
		for range 10 {
			if _, err := r.Resolve(t.Context(), wanted); err == nil || r.lookups() != 3 {
				t.Errorf("asked again: %v, %d lookups", err, r.lookups())
			}
		}
		r.world.AddImage(fake.Image{ID: "ami-late", Name: "nothing-1"})
		time.Sleep(time.Minute)
		if got, err := r.Resolve(t.Context(), wanted); err != nil || got["lost"] != "ami-late" {
			t.Errorf("once it is there: %v, %v", got, err)
		}
		r.run(t, wanted)
		time.Sleep(10 * time.Minute)
		if r.Known()["saved"] != "ami-late" {
			t.Errorf("the fallback outlives what it stood in for: %v", r.Known())
		}
	})
}

func TestProviderThatHangsOrCannot(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		r.world.FailNext(fake.OpImage, 1, fake.Fault{Hang: true})
		wanted := map[string]images.Image{"os": image("debian-*", "")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Resolve(ctx, wanted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller who gives up: %v", err)
		}
		began := time.Now()
		if _, err := r.Resolve(t.Context(), wanted); err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("a lookup without end: %v after %v", err, time.Since(began))
		}

		cannot := images.New(r.config(nil))
		wanted["saved"] = image("debian-*", "ami-saved")
		got, err := cannot.Resolve(t.Context(), wanted)
		if !errors.Is(err, provider.ErrUnsupported) || !strings.Contains(err.Error(), "images.os") || got["saved"] != "ami-saved" {
			t.Errorf("a provider that can't: %v, %v", got, err)
		}
	})
}

// What was begun for a term ends with it: nothing is asked for, and nothing
// reported, in the name of one that is over.
func TestNothingGoesOnAfterRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		r.world.FailNext(fake.OpImage, 1, fake.Fault{Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { r.Run(ctx, func() map[string]images.Image { return nil }) })
		wanted := map[string]images.Image{"os": image("debian-*", "")}
		done.Go(func() {
			if _, err := r.Resolve(t.Context(), wanted); err == nil {
				t.Error("a lookup that hangs found something")
			}
		})
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		done.Wait()
		if took := time.Since(began); took > 0 || len(r.problems()) != 0 {
			t.Errorf("the lookup went on for %v, problems %v", took, r.problems())
		}
		if _, err := r.Resolve(t.Context(), wanted); err == nil || r.lookups() != 1 {
			t.Errorf("after the end: %v, %d lookups", err, r.lookups())
		}
	})
}

// What fails is said again before a problem of the whole shard counts as over,
// which is five minutes after it was last reported.
func TestFailureIsReportedForAsLongAsItLasts(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		r.run(t, map[string]images.Image{"os": image("nothing-*", "ami-saved")})
		time.Sleep(time.Minute)
		for range 12 {
			before := len(r.problems())
			time.Sleep(5*time.Minute - 5*time.Second)
			if len(r.problems()) == before {
				t.Fatalf("nothing reported for five minutes: %v", r.problems())
			}
		}
	})
}

func TestUnusedImagesAreNotLookedUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *room) {
		if _, err := r.Resolve(t.Context(), map[string]images.Image{"old": image("debian-01", "")}); err != nil {
			t.Fatal(err)
		}
		r.run(t, map[string]images.Image{"os": image("debian-*", "")})
		time.Sleep(13 * time.Hour)
		if !maps.Equal(r.Known(), map[string]string{"os": "ami-2"}) || r.lookups() != 4 {
			t.Errorf("known %v after %d lookups, want one before and three refreshes", r.Known(), r.lookups())
		}
	})
}
