package delivery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// TestHostileKeys: only requested keys are accepted, all or none.
func TestHostileKeys(t *testing.T) {
	inBubble(t, certificate, func(t *testing.T, f *fixture) {
		a := f.instance("default")
		if err := f.d.Submit(a.id, nil); !errors.Is(err, delivery.ErrNoKeyStream) {
			t.Errorf("without a stream: %v", err)
		}
		a.keyless = true
		a.connect()
		good, err := pki.EncodePublicKey(pki.PublicKey(a.held["k"]))
		if err != nil {
			t.Fatal(err)
		}
		many := map[string]string{}
		for n := range 300 {
			many[fmt.Sprint("k", n)] = string(good)
		}
		for what, keys := range map[string]map[string]string{
			"another name":  {"k": string(good), "other": string(good)},
			"a path":        {"../k": string(good)},
			"junk":          {"k": "junk"},
			"nothing":       {"k": ""},
			"too long":      {"k": string(good) + strings.Repeat("\n", 2000)},
			"two keys":      {"k": string(good) + string(good)},
			"hundreds":      many,
			"a certificate": {"k": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
		} {
			if err := f.d.Submit(a.id, keys); err == nil {
				t.Errorf("%s: it was taken", what)
			}
		}
		a.receivesNothing()
		// Another instance's keys do not count for this one.
		b := f.connected("default")
		b.receives("k.crt")
		a.receivesNothing()
	})
}

// TestHostileReports: an agent that keeps reporting its certificate as missing, connection
// after connection, gets only a few.
func TestHostileReports(t *testing.T) {
	inBubble(t, certificate, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			delete(a.disk, "k.crt")
			a.disconnect()
			a.connectNow()
			synctest.Wait()
		}
		if n := len(f.logged()); n > 10 {
			t.Errorf("%d certificates in a minute", n)
		}
		time.Sleep(5 * time.Minute)
		a.report()
		a.inOrder() // an honest agent is not locked out
	})
}

// TestJunkReports: reports may contain anything.
func TestJunkReports(t *testing.T) {
	inBubble(t, allKinds, func(_ *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		junk := delivery.FileReport{ConfigHash: strings.Repeat("x", 1<<20)}
		for n := range 10000 {
			junk.Files = append(junk.Files, delivery.FileStatus{Name: fmt.Sprint(n%7, "/\x00"), State: delivery.FileState(n % 9),
				Error: strings.Repeat("e", n)})
		}
		f.d.Reported(a.id, junk)
		synctest.Wait()
		if n := len(f.d.ConfigHash(a.id)); n > 200 {
			f.t.Errorf("%d bytes of a hash were kept", n)
		}
		time.Sleep(time.Minute)
		a.report()
		a.inOrder()
		f.d.Reported("knd01h455vb4pex5vsknk084sn02q", junk) // an unknown instance
	})
}

// TestSlowReceiver: a receiver that does not read is disconnected, and delays no other.
func TestSlowReceiver(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		slow := f.instance("default")
		stuck := make(chan struct{})
		slow.keys = f.d.OpenKeys(slow.id, slow.generate)
		stream := f.d.OpenFiles(slow.id, func(delivery.Push) error { <-stuck; return errDown })
		slow.report()
		synctest.Wait()
		quick := f.connected("default")
		quick.inOrder()
		began := time.Now()
		<-stream.Ended()
		if took := time.Since(began); !errors.Is(stream.Err(), delivery.ErrSlow) || took > time.Minute {
			t.Errorf("ended after %s: %v", took, stream.Err())
		}
		close(stuck) // done by the end of its handler
		f.d.CloseFiles(slow.id, stream)
		slow.files = f.d.OpenFiles(slow.id, slow.take)
		slow.inOrder()
	})
}

// TestReplacedStreams: the newest stream is used, and the end of an older one has no effect.
func TestReplacedStreams(t *testing.T) {
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		a := f.connected("default")
		a.received()
		oldFiles, oldKeys := a.files, a.keys
		a.files, a.keys = f.d.OpenFiles(a.id, a.take), f.d.OpenKeys(a.id, a.generate)
		<-oldFiles.Ended()
		<-oldKeys.Ended()
		if !errors.Is(oldFiles.Err(), delivery.ErrReplaced) || !errors.Is(oldKeys.Err(), delivery.ErrReplaced) {
			t.Errorf("ended by %v and %v", oldFiles.Err(), oldKeys.Err())
		}
		f.d.CloseFiles(a.id, oldFiles)
		f.d.CloseKeys(a.id, oldKeys)
		synctest.Wait()
		f.define(allKinds, "debug")
		f.d.Changed()
		a.receives("app.conf", "app.env", "app.json")
		a.inOrder()
	})
}

// TestChangesCoalesce: however often a group changes during a push, the next push is the
// latest set.
func TestChangesCoalesce(t *testing.T) {
	inBubble(t, plain, func(t *testing.T, f *fixture) {
		a := f.instance("default")
		gate := make(chan struct{})
		a.keys = f.d.OpenKeys(a.id, a.generate)
		a.files = f.d.OpenFiles(a.id, func(p delivery.Push) error { <-gate; return a.take(p) })
		a.report()
		synctest.Wait()
		for n := range 50 {
			f.define(plain, fmt.Sprint("level", n))
			f.d.Changed()
		}
		close(gate)
		if pushes := a.received(); len(pushes) != 2 {
			t.Errorf("%d pushes", len(pushes))
		}
		a.inOrder()
		if string(a.disk["app.conf"]) != "level=level49" {
			t.Errorf("it has %s", a.disk["app.conf"])
		}
	})
}
