package awsclient_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
)

// issuer returns keys with a lifetime, K1 first, or fails.
type issuer struct {
	life  time.Duration // 0: they don't expire
	err   error
	hangs time.Duration // ignores its context
	asked int
}

func (i *issuer) ask(context.Context) (awsclient.Keys, error) {
	i.asked++
	id := fmt.Sprint("K", i.asked)
	time.Sleep(i.hangs)
	return awsclient.Keys{
		AccessKeyID: id, SecretAccessKey: "secret", CanExpire: i.life != 0, Expires: time.Now().Round(0).Add(i.life),
	}, i.err
}

// get retrieves keys, then waits until nothing runs in the background.
func get(t *testing.T, k *awsclient.Keeper) (id string, took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	keys, err := k.Retrieve(t.Context())
	took = time.Since(began)
	synctest.Wait()
	return keys.AccessKeyID, took, err
}

// TestRenewal: keys are renewed before they expire, but not too early.
func TestRenewal(t *testing.T) {
	for life, renewed := range map[time.Duration]time.Duration{
		6 * time.Hour: time.Hour, 30 * time.Minute: 25 * time.Minute, 2 * time.Minute: 90 * time.Second, 0: time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			i := &issuer{life: life}
			k := awsclient.Keep(i.ask)
			for range 10 {
				if id, _, err := get(t, k); id != "K1" || err != nil || i.asked != 1 {
					t.Fatalf("life %s: %s, %v, asked %d times", life, id, err, i.asked)
				}
				time.Sleep(renewed / 10)
			}
			for _, want := range []string{"K1", "K2"} { // the others are returned without a wait
				if id, _, err := get(t, k); id != want || err != nil || i.asked != 2 {
					t.Errorf("life %s: %s, %v, asked %d times, want %s", life, id, err, i.asked, want)
				}
			}
		})
	}
}

// TestSourceFails: only valid keys outlive a failing source.
func TestSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, none := &issuer{life: time.Hour}, errors.New("503")
		k := awsclient.Keep(i.ask)
		for n := range 60 {
			if id, took, err := get(t, k); id != "K1" || err != nil || took != 0 {
				t.Errorf("after %d minutes: %s, %v, in %s", n, id, err, took)
			}
			i.err = none
			time.Sleep(time.Minute)
		}
		for range 3 {
			if _, _, err := get(t, k); !errors.Is(err, none) {
				t.Errorf("when they have expired: %v", err)
			}
		}
		if i.asked > 8 {
			t.Errorf("asked %d times, though once failed a moment ago", i.asked)
		}
		i.err = nil
		time.Sleep(time.Second)
		if _, _, err := get(t, k); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestSourceHangs: a call waits for 8 s at most, or until its own deadline, and with valid keys not
// at all.
func TestSourceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{life: time.Hour, hangs: time.Minute}
		k := awsclient.Keep(i.ask)
		ended := make(chan time.Duration, 3)
		for range cap(ended) {
			go func() {
				began := time.Now()
				if _, err := k.Retrieve(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("without keys: %v", err)
				}
				ended <- time.Since(began)
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := k.Retrieve(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("with a second to wait: %v", err)
		}
		for range cap(ended) {
			if took := <-ended; took != 8*time.Second {
				t.Errorf("took %s", took)
			}
		}
		time.Sleep(time.Minute) // its late answer is used
		time.Sleep(55 * time.Minute)
		if id, took, err := get(t, k); id != "K1" || err != nil || took != 0 || i.asked != 2 {
			t.Errorf("with good keys: %s, %v after %s, asked %d times", id, err, took, i.asked)
		}
		time.Sleep(time.Minute) // it ends
	})
}

// TestForget: keys that a service refuses are dropped, if they are the current ones, and others
// exist.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{life: time.Hour}
		k := awsclient.Keep(i.ask)
		for _, step := range []struct {
			forget string
			fails  error // the source's answer then
			want   string
		}{{"", nil, "K1"}, {"K1", nil, "K2"}, {"K1", nil, "K2"}, {"K2", errors.New("503"), "K2"}} {
			i.err = step.fails
			k.Forget(step.forget)
			if id, _, err := get(t, k); id != step.want || err != nil {
				t.Errorf("%+v: %s, %v", step, id, err)
			}
		}
	})
}

// TestNoKeys: an answer without keys is an error.
func TestNoKeys(t *testing.T) {
	k := awsclient.Keep(func(context.Context) (awsclient.Keys, error) { return awsclient.Keys{}, nil })
	if _, err := k.Retrieve(t.Context()); err == nil {
		t.Error("keys that are empty are taken")
	}
}
