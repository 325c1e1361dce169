package delivery_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// FuzzSubmit: only requested keys are accepted.
func FuzzSubmit(f *testing.F) {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	good, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("k", string(good))
	f.Add("k", "")
	f.Add("../k", string(good))
	f.Add("k\x00", strings.Repeat("-", 2000))
	ctx, cancel := context.WithCancel(context.Background())
	f.Cleanup(cancel)
	s := newFixtureIn(f, ctx, certificate)
	id, err := fleet.NewID("knd", time.Now(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	s.instances[id] = fleet.Instance{ID: id, Tenant: "default", Group: "web", Phase: fleet.Running, Rev: 2, Hostname: "web-1",
		IPs: []string{"10.0.0.1"}}
	asked := make(chan struct{})
	s.d.OpenKeys(id, func([]delivery.KeyRequest) error { close(asked); return nil })
	<-asked
	f.Fuzz(func(t *testing.T, name, text string) {
		err := s.d.Submit(id, map[string]string{name: text})
		if _, bad := pki.ParseLeafKey([]byte(text)); err == nil && (name != "k" || bad != nil) {
			t.Fatalf("the key %q was taken: %q", name, text)
		}
	})
}
